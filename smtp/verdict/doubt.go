package verdict

import (
	_ "embed"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"sync"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// doubtsFile has words that occur in refusals of senders, and never in statements about a mailbox.
//
//go:embed rules/doubts.txt
var doubtsFile string

// doubtful finds the words of doubtsFile.
var doubtful = sync.OnceValue(func() machine {
	var lines []string
	for line := range strings.Lines(doubtsFile) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	words, err := parseWords(lines)
	if err != nil { // a fault of this package, found by every test
		panic("verdict: doubts.txt: " + err.Error())
	}
	phrases := make([]phrase, len(words))
	for i, word := range words {
		phrases[i] = phrase{text: apart(word)}
	}
	return newMachine(phrases)
})

// doubts makes a plain statement about a mailbox ambiguous (bare) when words of refusals stand beside it. It does
// not apply to the operator's rules and to rules for certain hosts.
type doubts struct {
	of    found // the rules that it applies to
	said  found // these, and those with the same statement that are already bare
	relay found // rules that read a code as "domain not served"
	words machine
}

func newDoubts(rules []*rule) doubts {
	d := doubts{words: doubtful()}
	h := fnv.New32a()
	h.Write([]byte(doubtsFile))
	for i, r := range rules {
		if !strings.HasPrefix(r.file.name, genericPrefix) {
			continue
		}
		if r.verdict.Outcome == smtp.Invalid {
			d.said.set(i)
		}
		switch {
		case r.verdict.Outcome == smtp.Invalid && !r.verdict.Bare:
			d.of.set(i)
		case r.verdict.Reason == smtp.DomainNotHosted && len(r.enhanced) > 0:
			d.relay.set(i)
		default:
			continue
		}
		r.verdict.Version ^= h.Sum32() // the verdict depends on the words
	}
	return d
}

// weaken returns the verdict of a rule on a text. Beside words of a refusal it is bare, and a code no longer means
// "domain not served". A statement about us, or about a thing that belongs to a mailbox, says nothing about the
// mailbox itself, even if another mailbox is accepted.
func (d *doubts) weaken(i int, v Verdict, text string) Verdict {
	if !d.of.has(i) && !d.relay.has(i) {
		return v
	}
	var seen found
	plain := spoken(text)
	d.words.scan(plain, &seen)
	switch other := speaksOfYou(plain) || speaksOfThings(plain); {
	case other, seen.has(0) && d.relay.has(i):
		v.Outcome, v.Action, v.Reason, v.Blame = smtp.Undecided, ActRetry, smtp.Policy, smtp.BlameNobody
	case seen.has(0), speaksOfOthers(plain):
		v.Bare = true
	}
	return v
}

// ofOthers finds statements about another address, perhaps that of our network.
var ofOthers = regexp.MustCompile(
	`(?:^|[^a-z])address(?: (?:(?:is|was) )?(?:unknown|invalid|not (?:found|known)))?:? [[(]?~` +
		`|(?:^|[^a-z])~[])]?:? (?:(?:unknown|invalid) )?address(?:$|[^a-z])`)

// speaksOfOthers reports whether a text names an address other than the asked one and makes a statement about it.
func speaksOfOthers(text string) bool {
	return strings.IndexByte(text, evidence.MarkAsked) < 0 && strings.IndexByte(text, '~') >= 0 &&
		ofOthers.MatchString(text)
}

// ofReaders finds phrases that address us but say nothing about us: our mail, and what we may do about it.
var ofReaders = regexp.MustCompile(`your (e-? ?|original |)(mails?|messages?|letters?|recipient('?s|)|spelling|` +
	`request|correspondent|contact|address ?book)`)

// speaksOfYou reports whether a text says something about the client, that is about us ("your host").
func speaksOfYou(text string) bool {
	return strings.Contains(text, "your") &&
		strings.Contains(" "+withoutCourtesies(ofReaders.ReplaceAllString(text, " ")), " your ")
}

// subjects find English nouns that are the real subject beside a word for a mailbox: "user key not found", "the
// filter of this user does not exist", "IPv6 is disabled for this mailbox". Each needs one of its words.
var subjects = func() []subject {
	const box, said = `(?:user|account|mailbox|recipient|inbox|alias)`, `(?:is|isn't|was|are|were|(?:has|have) been|` +
		`not found|not known|no longer|could not|couldn't|cannot|can't|does not|doesn't|unknown|missing|disabled|closed)` +
		`(?:$|[^a-z])`
	return []subject{
		{regexp.MustCompile(`(?:^|[^a-z])` + box + `(?:'?s)? ([a-z]+) ` + said), []string{" "}},
		{regexp.MustCompile(`([a-z]+) (?:of|for) (?:the |this |that |a |)` + box + " " + said), []string{" of ", " for "}},
		{regexp.MustCompile(`([a-z0-9]+) (?:is|was|are|were) (?:not (?:found|known|enabled)|unknown|missing|disabled|` +
			`closed|full|(?:switched|turned) off) (?:for|on|in) (?:the|this|that) ` + box),
			[]string{" is ", " was ", " are ", " were "}},
	}
}()

type subject struct {
	form  *regexp.Regexp
	words []string
}

// noThings are words that may stand where subject expects a noun, but aren't nouns or name the mailbox.
var noThings = wordSet(`is was are were be been has have had does do did will would can cannot could may not no never
	now still currently also already longer account accounts mailbox mailboxes box inbox maildir address name id
	email mail alias entry record object profile user recipient person storage space quota limit that you who which
	of for in on at by to here there with and or unknown invalid inactive it this below given specified entered above
	out permanently temporarily administratively probably apparently simply seems status state delivery receiving
	reception post service allotment allowance allocation capacity size`)

// speaksOfThings reports whether the subject of a text is not the mailbox but something of it, such as its filter.
func speaksOfThings(text string) bool {
	for _, s := range subjects {
		if !slices.ContainsFunc(s.words, func(word string) bool { return strings.Contains(text, word) }) {
			continue
		}
		for _, found := range s.form.FindAllStringSubmatch(text, -1) {
			if !noThings[found[1]] {
				return true
			}
		}
	}
	return false
}

// tags are what servers append to a sentence as a reference: "[srv: mx-c4]", "(10.2.14)".
var tags = regexp.MustCompile(`[(\[]((srv|server|host|node|mx|id|ref|tag|case|trace|ticket)[:=#]? ?)?` +
	`[a-z0-9._-]*[0-9._-][a-z0-9._-]*[)\]]`)

// spoken removes links, tags and host names from a text, because their parts are not words.
func spoken(text string) string {
	text = withoutLinks(text)
	if strings.ContainsAny(text, "([") {
		text = tags.ReplaceAllString(text, " ")
	}
	named := func(word string) bool {
		for i := 1; i+1 < len(word); i++ {
			if word[i] == '.' && evidence.IsWordByte(word[i-1]) && evidence.IsWordByte(word[i+1]) {
				return true
			}
		}
		return false
	}
	words := strings.Fields(text)
	if !slices.ContainsFunc(words, named) {
		return text
	}
	return strings.Join(slices.DeleteFunc(words, named), " ")
}
