package verdict

import (
	_ "embed"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"sync"

	"rollcall/smtp"
)

// doubtsFile has words that people use who refuse senders, and never those who speak of a
// mailbox.
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

// doubts makes a plain statement about a mailbox a bare one, when words of refusals stand
// beside it. Rules about certain hosts, and the operator's, know what they say.
type doubts struct {
	of    found // the rules that it is about
	relay found // rules that take a code for a domain that is not served
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
		switch {
		case r.verdict.Outcome == smtp.Invalid && !r.verdict.Bare:
			d.of.set(i)
		case r.verdict.Reason == smtp.DomainNotHosted && len(r.enhanced) > 0:
			d.relay.set(i)
		default:
			continue
		}
		r.verdict.Version ^= h.Sum32() // what it says depends on the words
	}
	return d
}

// weaken returns the verdict of a rule on a text: beside words of a refusal it is bare, and a code
// says nothing of a domain.
func (d *doubts) weaken(i int, v Verdict, text string) Verdict {
	if !d.of.has(i) && !d.relay.has(i) {
		return v
	}
	var seen found
	if d.words.scan(spoken(text), &seen); !seen.has(0) {
		return v
	}
	if d.of.has(i) {
		v.Bare = true
	} else {
		v.Action, v.Reason, v.Blame = ActRetry, smtp.Policy, smtp.BlameNobody
	}
	return v
}

// tags are what servers put behind a sentence to find it again: "[srv: mx-c4]", "(10.2.14)".
var tags = regexp.MustCompile(`[(\[]((srv|server|host|node|mx|id|ref|tag|case|trace|ticket)[:=#]? ?)?` +
	`[a-z0-9._-]*[0-9._-][a-z0-9._-]*[)\]]`)

// spoken takes links, tags and names of hosts out of a text: what they are made of are no words.
func spoken(text string) string {
	text = withoutLinks(text)
	if strings.ContainsAny(text, "([") {
		text = tags.ReplaceAllString(text, " ")
	}
	named := func(word string) bool {
		for i := 1; i+1 < len(word); i++ {
			if word[i] == '.' && isWordByte(word[i-1]) && isWordByte(word[i+1]) {
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
