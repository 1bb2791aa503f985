package smtplab

import (
	"math/rand/v2"
	"strconv"
)

// weighted is a personality and its frequency.
type weighted struct {
	personality string
	weight      int
}

// sampleWeights are the frequencies of personalities in a Sample. Guess: over half answer plainly, a tenth accepts
// everything, a tenth greylists, the rest is difficult. Personalities that never answer are excluded, because they
// would only measure time-outs.
var sampleWeights = []weighted{
	{"clean", 300}, {"plain", 100}, {"exchange", 80}, {"starttls", 60}, {"multiline", 20}, {"chatty", 20},
	{"nonascii", 10}, {"tlsonly", 10}, {"twomx", 40}, {"firstdown", 10}, {"implicit", 15}, {"alias", 10},
	{"hostalias", 10}, {"catchall", 100}, {"cannotsay", 10}, {"greylist", 50}, {"quietgrey", 10},
	{"fullgrey", 10}, {"postscreen", 10}, {"onesession", 10}, {"onercpt", 10}, {"fewrcpts", 10},
	{"short", 10}, {"ratelimit", 5}, {"chasquid", 10}, {"postfix", 20}, {"exim", 15}, {"cisco", 5},
	{"nxdomain", 15}, {"nodata", 5}, {"nullmx", 5}, {"blocked", 5}, {"policy", 5}, {"servfail", 2},
	{"unreachable", 3}, {"flaky", 5}, {"norelay", 5},
}

// Parts of the names in a Sample. First name, dot, last name and four digits have at most 15 bytes; with a dash
// instead of the dot the mailbox does not exist.
var (
	sampleFirst = []string{
		"anna", "ben", "carla", "david", "emma", "felix", "greta", "hugo", "ida", "jonas", "kira", "lars",
		"mia", "nils", "olga", "paul", "rosa", "simon", "tina", "uwe", "vera", "wim", "yara", "zoe",
	}
	sampleLast = []string{
		"adler", "bauer", "conti", "duval", "ekman", "ferro", "gomez", "hoff", "ivers", "jager", "klein",
		"lopez", "meyer", "novak", "olsen", "petit", "quinn", "rossi", "smith", "tanke", "ueda", "vogel",
		"weber", "young",
	}
	sampleCompany = []string{
		"acme", "atlas", "birch", "cedar", "delta", "ember", "fjord", "globe", "harbor", "iris", "juno",
		"kite", "lumen", "maple", "nova", "orbit", "pine", "quartz", "ridge", "stone", "tidal", "umbra",
		"vista", "willow",
	}
)

// The kinds of 100 addresses at one domain in a Sample, in order: unknown, full, disabled, restricted; the rest exists.
const (
	sampleUnknown    = 15
	sampleFull       = 17
	sampleDisabled   = 18
	sampleRestricted = 19
)

// sampleHarvestUnknown is the number of unknown addresses at a domain with GuardHarvest: below its limit, with room
// for control probes.
const sampleHarvestUnknown = 10

// Sample makes n distinct addresses at the given number of domains with many personalities, the same for the same
// seed. Every domain has an address if n allows; the rest is uneven: the largest domain has about n divided by the
// root of domains. Lab.Truth labels each. n or domains below 1 give none.
func Sample(seed uint64, n, domains int) []string {
	if n < 1 || domains < 1 {
		return nil
	}
	random := rand.New(rand.NewPCG(seed, seed))
	names := sampleDomains(random, min(domains, n))
	unknowns := make(map[int]int)
	out := make([]string, n)
	for i := range out {
		at := i
		if i >= len(names) {
			u := random.Float64()
			at = int(u * u * float64(len(names)))
		}
		kind := random.IntN(100)
		if names[at].harvest && kind < sampleUnknown {
			if unknowns[at]++; unknowns[at] > sampleHarvestUnknown {
				kind = 100
			}
		}
		out[i] = sampleLocal(i, kind) + "@" + names[at].name
	}
	random.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

type sampleDomain struct {
	name    string
	harvest bool // use few unknown addresses
}

func sampleDomains(random *rand.Rand, n int) []sampleDomain {
	out := make([]sampleDomain, n)
	for i := range out {
		personality := pick(random)
		out[i] = sampleDomain{sampleName(i, personality), personality == "cisco"}
	}
	return out
}

// pick draws a personality by its weight.
func pick(random *rand.Rand) string {
	sum := 0
	for _, m := range sampleWeights {
		sum += m.weight
	}
	at := random.IntN(sum)
	for _, m := range sampleWeights {
		if at -= m.weight; at < 0 {
			return m.personality
		}
	}
	return sampleWeights[0].personality
}

// sampleName makes the name of the ith domain.
func sampleName(i int, personality string) string {
	return sampleCompany[i%len(sampleCompany)] + strconv.Itoa(i/len(sampleCompany)) + "-" + personality + "." + TopLevel
}

// sampleLocal makes the local part of the ith address, distinct for all i below 5,760,000 at one domain.
func sampleLocal(i, kind int) string {
	number := i
	first := sampleFirst[number%len(sampleFirst)]
	number /= len(sampleFirst)
	last := sampleLast[number%len(sampleLast)]
	number /= len(sampleLast)
	digits := ""
	if number > 0 {
		digits = strconv.Itoa(number)
	}
	switch {
	case kind < sampleUnknown:
		return first + "-" + last + digits
	case kind < sampleFull:
		return "full." + letters(i)
	case kind < sampleDisabled:
		return "disabled." + letters(i)
	case kind < sampleRestricted:
		return "restricted" + letters(i)
	}
	return first + "." + last + digits
}

// letters returns n in base 26.
func letters(n int) string {
	out := []byte{}
	for ; len(out) == 0 || n > 0; n /= 26 {
		out = append(out, byte('a'+n%26))
	}
	return string(out)
}
