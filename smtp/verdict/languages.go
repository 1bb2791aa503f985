package verdict

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

// languagesFile has the words for mailboxes, and for what is said of them, by language.
//
//go:embed rules/languages.txt
var languagesFile string

// The kinds of words that a language has.
const (
	wordMailbox = iota
	wordMissing // these three in the order of statements
	wordClosed
	wordFull
	wordFound // beside "not" what the same of the three says
	wordActive
	wordRoom
	wordNot
	wordOther // of senders, permissions, numbers and time: beside "mailbox" nothing is said of one, in no language
	numWords
)

var wordNames = [numWords]string{"mailbox", "missing", "closed", "full", "found", "active", "room", "not", "other"}

// A statement is what a sentence says of a mailbox.
type statement uint8

const (
	saysNothing statement = iota
	saysMissing
	saysClosed
	saysFull
)

var statementNames = [...]string{saysMissing: "missing", saysClosed: "closed", saysFull: "full"}

// languages finds statements about mailboxes in many languages.
type languages struct {
	words machine // the number of a language times numWords, and the kind
	count int
}

const languagesMax = 64 // a guess: few more are written where mail servers are

var spokenLanguages = sync.OnceValue(func() *languages {
	l, err := readLanguages(languagesFile)
	if err != nil { // a fault of this package, found by every test
		panic("verdict: languages.txt: " + err.Error())
	}
	return l
})

// readLanguages reads sections such as "[de]" with lines such as "full: voll, überfüllt".
func readLanguages(file string) (*languages, error) {
	l := &languages{}
	var phrases []phrase
	for line := range strings.SplitSeq(strings.ReplaceAll(file, "\n ", " "), "\n") {
		switch {
		case line == "" || line[0] == '#':
			continue
		case line[0] == '[':
			l.count++
			continue
		}
		name, list, _ := strings.Cut(line, ": ")
		kind := 0
		for kind < numWords && wordNames[kind] != name {
			kind++
		}
		words, err := parseWords(strings.Split(list, ", "))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		} else if kind == numWords || l.count == 0 || l.count > languagesMax {
			return nil, fmt.Errorf("%q: write %s behind a language, at most %d languages", line,
				strings.Join(wordNames[:], ", "), languagesMax)
		}
		for _, word := range words {
			phrases = append(phrases, phrase{text: apart(word), rule: (l.count-1)*numWords + kind})
		}
	}
	l.words = newMachine(phrases)
	return l, nil
}

const (
	// plainMax is how many bytes of a text are read: what says plainly that a mailbox is missing is short.
	plainMax = 400
	// nearMax is how many bytes may stand between "not" and what it denies. Guess: a dozen words.
	nearMax = 90
)

// heard is what was found of one language.
type heard struct {
	kinds uint16          // a bit for each kind of word, and of denied ones as if said in so many words
	at    [numWords]int16 // where words of "not" and of what it denies ended last; 0: nowhere in this sentence
}

// statement gives what a text says of a mailbox, in whatever language. What is full is there, and what is closed was.
func (l *languages) statement(text string) statement {
	if text == "" {
		return saysNothing
	}
	var of [languagesMax]heard
	text = text[:min(len(text), plainMax)]
	sentence := 0
	l.words.each(text, func(word, end int) {
		h, kind := &of[word/numWords], word%numWords
		for sentence < end && sentence < len(text) { // a sentence ends the reach of "not"
			if endsSentence(text, sentence) && sentence+1 < end {
				for i := range of {
					of[i].at = [numWords]int16{}
				}
			}
			sentence++
		}
		h.kinds |= 1 << kind
		h.at[kind] = int16(end)
		h.deny(kind)
	})
	most := saysNothing
	for i := range l.count {
		kinds := of[i].kinds
		if kinds>>wordMailbox&1 == 0 {
			continue
		} else if kinds>>wordOther&1 == 1 {
			return saysNothing
		}
		for s := saysFull; s > most; s-- {
			if kinds>>s&1 == 1 {
				most = s
			}
		}
	}
	return most
}

// deny takes what stands near "not" for its contrary, in any order: languages differ.
func (h *heard) deny(kind int) {
	near := func(denied int) bool {
		one, other := h.at[wordNot], h.at[denied]
		return one > 0 && other > 0 && one != other && max(one, other)-min(one, other) <= nearMax
	}
	for denied := wordFound; denied <= wordRoom; denied++ {
		if (kind == wordNot || kind == denied) && near(denied) {
			h.kinds |= 1 << (denied - wordFound + wordMissing)
		}
	}
}

// endsSentence reports whether a sentence of a text ends with the byte at i.
func endsSentence(text string, i int) bool {
	c := text[i]
	return (c == '.' || c == '!' || c == '?' || c == ';') && (i+1 == len(text) || text[i+1] == ' ')
}
