package verdict

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// languagesFile has the words for mailboxes, and for statements about them, by language.
//
//go:embed rules/languages.txt
var languagesFile string

// The kinds of words that a language has.
const (
	wordMailbox = iota
	wordMissing // these three in the order of statements
	wordClosed
	wordFull
	wordFound // with "not" it means missing, active closed, and so on
	wordActive
	wordRoom
	wordLinked  // with "not" between two mailboxes one is missing: an address that belongs to no user
	wordMail    // a mailbox if it is missing; a closed or full one may be a message
	wordMessage // beside it "closed" may be about a message
	wordNot
	wordFor   // before "mailbox": the statement is about something else, such as "settings for this user"
	wordSpent // with "room" it means a full mailbox: all its space is used
	wordShut  // "closed" in one word, which a "not" before it denies
	wordOther // senders, permissions, numbers, time: beside "mailbox" the statement is not about it, in any language
	wordIf    // a clause with it is a condition, not a fact
	numWords
)

var wordNames = [numWords]string{"mailbox", "missing", "closed", "full", "found", "active", "room", "linked", "mail",
	"message", "not", "for", "spent", "shut", "other", "if"}

// A statement is what a sentence says about a mailbox.
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
	words machine // the number of a language times numWords, and the kind; three times that, and how well it is known
	count int
}

const languagesMax = 128 // mail servers write in fewer

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
	english := map[string]bool{} // words for mailboxes
	for line := range strings.SplitSeq(strings.ReplaceAll(file, "\n ", " "), "\n") {
		switch {
		case line == "" || line[0] == '#':
			continue
		case line[0] == '[':
			l.count++
			continue
		}
		name, list, _ := strings.Cut(line, ": ")
		kind := slices.Index(wordNames[:], name)
		if kind < 0 || l.count == 0 || l.count > languagesMax {
			return nil, fmt.Errorf("%q: write %s behind a language, at most %d languages", line,
				strings.Join(wordNames[:], ", "), languagesMax)
		}
		for form := range strings.SplitSeq(list, ", ") {
			words, err := parseWords([]string{form})
			if err != nil {
				return nil, err
			}
			for _, word := range words {
				of := kind
				if word = apart(word); kind == wordClosed && !strings.Contains(word, " ") {
					of = wordShut
				}
				known := wellKnown
				if l.count <= englishSections {
					english[word] = english[word] || kind == wordMailbox
				} else if english[word] {
					known = isEnglish
				} else if len(strings.TrimSuffix(word, "*")) <= briefMax && isASCII(word) {
					known = isBrief
				}
				number := 3*((l.count-1)*numWords+of) + known
				phrases = append(phrases, phrase{text: word, rule: number})
			}
		}
	}
	l.words = newMachine(phrases)
	return l, nil
}

const (
	// englishSections are the first sections: for all languages, and for English.
	englishSections = 2
	// briefMax is the length of words that may belong to another language, such as "last".
	briefMax = 4
	// plainMin is below the length of any statement about a mailbox, in any language.
	plainMin = 5
	// plainMax bounds the bytes of a text that are read: plain statements about a mailbox are short.
	plainMax = 400
	// nearMax bounds the bytes between "not" and the word that it denies: a dozen words.
	nearMax = 90
)

// How well a word identifies its language: alone, beside another one, or not at all.
const (
	wellKnown = iota
	isBrief
	isEnglish
)

// heard collects the words found of one language.
type heard struct {
	kinds uint32          // a bit for each kind of word, and twoBoxes and unlinked
	at    [numWords]int16 // where words for "not" and what it may deny ended last; 0: not in this sentence
	box   int16           // where the first word for a mailbox ended
	now   uint32          // the kinds in this clause
	shown uint8           // how certain the language is: certain from 2 on
}

const (
	twoBoxes   = 1 << (numWords + iota) // two words for mailboxes
	unlinked                            // a "not" stands near a word that links
	besides                             // a mailbox for which something else is said
	forMax     = 30                     // bytes from a word for "for" to the end of a mailbox's
	undoneMax  = 30                     // bytes from "not" to the end of the word for closed that it denies
	boxMin     = 12                     // bytes between two words for mailboxes; closer ones are one
	heardUsual = 12                     // usual bound of the languages found in a text
)

// statementOf returns what a text says about a mailbox, in any language. A full mailbox exists; a closed one did exist.
func (l *languages) statementOf(text string) statement {
	if len(text) < plainMin {
		return saysNothing
	}
	var room, before [heardUsual]heard
	var at [languagesMax]uint8 // of each language, in of, from 1 on
	of, was, read := room[:0], before[:0], 0
	endClause := func() {
		shared, condition := uint32(0), false
		if at[0] > 0 {
			shared = of[at[0]-1].now
		}
		for i := range of {
			condition = condition || of[i].isCondition(shared)
			of[i].now = 0
		}
		if condition {
			clear(of[copy(of, was):])
		}
		was = append(was[:0], of...)
	}
	text = text[:min(len(text), plainMax)]
	l.words.eachHit(text, func(word, end int) {
		for ; read < end && read < len(text); read++ {
			if read+1 == end || !endsClause(text, read) {
				continue
			}
			endClause()
			for i := range of {
				if endsSentence(text, read) { // "not" reaches no further
					of[i].at = [numWords]int16{}
				}
			}
		}
		known, kind, language := word%3, word/3%numWords, word/3/numWords
		if at[language] == 0 {
			of = append(of, heard{})
			at[language] = uint8(len(of))
		}
		h := &of[at[language]-1]
		if h.now |= 1 << kind; kind == wordIf {
			return
		}
		h.hearWord(kind, int16(end))
		if language < englishSections || known == wellKnown && kind != wordOther && kind != wordFor {
			h.shown = 2
		} else if known == isBrief && h.shown < 2 {
			h.shown++
		}
	})
	endClause()
	most, shared := saysNothing, heard{}
	if at[0] > 0 { // the first section is for all languages
		shared = of[at[0]-1]
	}
	for i := range of {
		said, silent := of[i].besideShared(&shared).whatItSays()
		if silent {
			return saysNothing
		}
		most = max(most, said)
	}
	return most
}

// isCondition reports whether a clause is a condition: it has one language's words for a condition and a statement.
// The word for the mailbox may be one that all languages share.
func (h *heard) isCondition(shared uint32) bool {
	const boxes, said = 1<<wordMailbox | 1<<wordMail, 1<<wordMissing | 1<<wordClosed | 1<<wordFull | 1<<wordFound |
		1<<wordActive | 1<<wordRoom | 1<<wordLinked | 1<<wordSpent | 1<<wordShut
	return h.now>>wordIf&1 == 1 && h.now&said != 0 && (h.now|shared)&boxes != 0
}

// besideShared adds the words for mailboxes that all languages share.
func (h heard) besideShared(shared *heard) *heard {
	if h.box > 0 && shared.box > 0 && max(h.box, shared.box)-min(h.box, shared.box) >= boxMin {
		h.kinds |= twoBoxes
	}
	h.kinds |= shared.kinds & (1<<wordMailbox | twoBoxes)
	return &h
}

func (h *heard) hearWord(kind int, end int16) {
	box := kind == wordMailbox || kind == wordMail
	if before := h.at[wordFor]; box && before > 0 && end-before <= forMax {
		h.kinds |= besides
		return
	}
	if not := h.at[wordNot]; kind == wordShut && not > 0 && end-not <= undoneMax {
		return // "could not be closed"
	}
	h.kinds |= 1 << kind
	if kind == wordShut {
		h.kinds |= 1 << wordClosed
	}
	h.at[kind] = end
	switch {
	case !box:
		h.denyNear(kind)
	case h.box == 0:
		h.box = end
	case end-h.box >= boxMin:
		h.kinds |= twoBoxes
	}
}

// denied is the kind that a word becomes with "not" near it.
var denied = [numWords]uint32{wordFound: 1 << wordMissing, wordActive: 1 << wordClosed, wordRoom: 1 << wordFull,
	wordLinked: unlinked}

// denyNear reads a word near "not" as its opposite, in any order, because languages differ.
func (h *heard) denyNear(kind int) {
	not := h.at[wordNot]
	if not == 0 {
		return
	}
	for word := wordFound; word <= wordLinked; word++ {
		at := h.at[word]
		if (kind == wordNot || kind == word) && at > 0 && at != not && max(at, not)-min(at, not) <= nearMax {
			h.kinds |= denied[word]
		}
	}
}

// whatItSays returns what the words of one language say. silent: they are not about a mailbox.
func (h *heard) whatItSays() (said statement, silent bool) {
	named := h.kinds & (1<<wordMailbox | 1<<wordMail | besides)
	if named == 0 || h.shown < 2 || h.kinds>>wordOther&1 == 1 {
		return saysNothing, named != 0 && h.shown > 1
	}
	if h.kinds>>wordRoom&1 == 1 && h.kinds>>wordSpent&1 == 1 {
		h.kinds |= 1 << wordFull
	}
	for said = saysFull; said > saysNothing && h.kinds>>said&1 == 0; said-- {
	}
	if said == saysNothing && h.kinds&(twoBoxes|unlinked) == twoBoxes|unlinked {
		said = saysMissing
	}
	boxed := named>>wordMailbox&1 == 1 && (said != saysClosed || h.kinds>>wordMessage&1 == 0)
	if room := said == saysFull && named == besides; !room && (named == besides || said > saysMissing && !boxed) {
		said = saysNothing
	}
	return said, false
}

func endsClause(text string, i int) bool {
	c := text[i]
	return endsSentence(text, i) || c == '(' || c == ')' || c == ',' || c == ':' && i+1 < len(text) && text[i+1] == ' '
}

func endsSentence(text string, i int) bool {
	c := text[i]
	return (c == '.' || c == '!' || c == '?' || c == ';') && (i+1 == len(text) || text[i+1] == ' ')
}
