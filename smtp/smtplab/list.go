package smtplab

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
)

// EverydayMix is the mix of Sample, like customers' lists. The other mixes are the families of personalities
// (Families), with each member equally often, and AllMix, which is every family.
const (
	EverydayMix = "everyday"
	AllMix      = "all"
)

// listPerDomain is the default average number of addresses at a domain of List, as in Sample by the command. Guess.
const listPerDomain = 20

// ListOptions configure List. The same options give the same list.
type ListOptions struct {
	Seed      uint64
	Addresses int     // number of addresses; 1 to 5,000,000
	PerDomain int     // addresses at each domain, the last one fewer; 0: 20
	Mix       string  // one of Mixes; "": EverydayMix
	Bad       float64 // the share of mailboxes that do not exist, 0 to 1; 0: 15 of 100
	OnlyBad   bool    // no mailbox exists: a list that trips harvest guards
	IPv6      bool    // also OnlyIPv6 receivers, at ::1, if the client may dial it
}

// Label is one address with its truth.
type Label struct {
	Address     string
	Personality string
	Family      string
	Mailbox     Mailbox // the kind in the local part, even if the receiver does not know mailboxes
	Expectation
}

// listAddressesMax bounds a list: up to here sampleLocal gives distinct local parts.
const listAddressesMax = 5_000_000

// defaultBad is the share of unknown mailboxes in a list, that of Sample.
const defaultBad = sampleUnknown / 100.0

// Mixes returns the values of ListOptions.Mix.
func Mixes() []string {
	return append([]string{EverydayMix, AllMix}, Families()...)
}

// Families returns the families of personalities, in the order of Personalities.
func Families() []string {
	var out []string
	for _, p := range Personalities() {
		if !slices.Contains(out, p.Family) {
			out = append(out, p.Family)
		}
	}
	return out
}

// List makes a labelled list of distinct addresses, domain after domain, each with its truth. The error wraps
// ErrOptions.
func (l *Lab) List(o ListOptions) (iter.Seq[Label], error) {
	if o.Mix == "" {
		o.Mix = EverydayMix
	}
	if o.PerDomain == 0 {
		o.PerDomain = listPerDomain
	}
	if o.Bad == 0 {
		o.Bad = defaultBad
	}
	if o.OnlyBad {
		o.Bad = 1
	}
	members := mixed(o.Mix, o.IPv6)
	switch {
	case len(members) == 0:
		return nil, fmt.Errorf("%w: Mix %q is none of %v", ErrOptions, o.Mix, Mixes())
	case o.Addresses < 1 || o.Addresses > listAddressesMax:
		return nil, fmt.Errorf("%w: Addresses %d is not within 1 to %d", ErrOptions, o.Addresses, listAddressesMax)
	case o.PerDomain < 1:
		return nil, fmt.Errorf("%w: PerDomain %d is not 1 or more", ErrOptions, o.PerDomain)
	case o.Bad < 0 || o.Bad > 1:
		return nil, fmt.Errorf("%w: Bad %v is not within 0 to 1", ErrOptions, o.Bad)
	}
	return func(yield func(Label) bool) { l.list(o, members, yield) }, nil
}

func (l *Lab) list(o ListOptions, members []weighted, yield func(Label) bool) {
	random := rand.New(rand.NewPCG(o.Seed, o.Seed))
	family := make(map[string]string)
	for _, p := range Personalities() {
		family[p.Name] = p.Family
	}
	for i, domains := 0, 0; i < o.Addresses; domains++ {
		personality := pick(members, domains, o.Mix, random)
		name := sampleName(domains, personality)
		for end := min(i+o.PerDomain, o.Addresses); i < end; i++ {
			local := listLocal(i, o.Bad, random)
			label := Label{
				Address: local + "@" + name, Personality: personality, Family: family[personality],
				Mailbox: mailboxOf([]byte(local)),
			}
			label.Expectation = l.Truth(label.Address)
			if !yield(label) {
				return
			}
		}
	}
}

// weighted is a personality and its frequency.
type weighted struct {
	personality string
	weight      int
}

// mixed returns the members of a mix; none for an unknown mix.
func mixed(mix string, ipv6 bool) []weighted {
	if mix == EverydayMix {
		return sampleWeights
	}
	var out []weighted
	for _, p := range Personalities() {
		if (mix == AllMix || mix == p.Family) && (ipv6 || p.DNS != OnlyIPv6) {
			out = append(out, weighted{p.Name, 1})
		}
	}
	return out
}

// pick returns the personality of a domain: by weight in the everyday mix, otherwise in turn, so that a short list
// has each once.
func pick(members []weighted, domain int, mix string, random *rand.Rand) string {
	if mix != EverydayMix {
		return members[domain%len(members)].personality
	}
	sum := 0
	for _, m := range members {
		sum += m.weight
	}
	at := random.IntN(sum)
	for _, m := range members {
		if at -= m.weight; at < 0 {
			return m.personality
		}
	}
	return members[0].personality
}

// listLocal makes the local part of the ith address. One in twelve of the existing addresses has a special kind.
func listLocal(i int, bad float64, random *rand.Rand) string {
	const special = 12 // guess: a short list has each kind, and most mailboxes are plain
	if random.Float64() < bad {
		return sampleLocal(i, 0)
	}
	switch random.IntN(special) {
	case 0:
		return "full." + letters(i)
	case 1:
		return "disabled." + letters(i)
	case 2:
		return "restricted" + letters(i)
	case 3:
		return "overquota" + letters(i)
	case 4:
		return "busy." + letters(i)
	}
	return sampleLocal(i, 100)
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
		personality := pick(sampleWeights, i, EverydayMix, random)
		out[i] = sampleDomain{sampleName(i, personality), personality == "cisco"}
	}
	return out
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
