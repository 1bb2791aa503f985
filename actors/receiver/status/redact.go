package status

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// plainWords are common words of replies. If a local part is one of them, showing it gives nothing away, and rules look
// for these words.
var plainWords = strings.Fields(`a an and as at be by do for from go if in is it me my no not of off ok on or
	our so the this to up us was we with you your
	abuse access account address admin again allowed auth bad blocked block busy check client closed closing
	command connection contact data denied disabled does domain email error exist failed found full greylisted
	host hostmaster inbox invalid ip ipv4 ipv6 later limit list local mail mailbox mailer many message messages
	mx name new open policy postmaster provider quota rate rcpt receiver recipient recipients refused reject
	rejected relay reply retry root sender server service session smtp source spam support system temporary test
	tls too transaction try unavailable unknown user users verify virtual webmaster`)

// Redact removes the asked local part from a cleaned text, as a word and in the forms that receivers make of a local
// part. Cleaning (smtp/evidence) leaves a local part that is a single word, because rules read words. People and
// records don't need that word.
func Redact(text, local string) string {
	if local == "" || text == "" {
		return text
	}
	local = strings.ToLower(local)
	plain := 0 // every form begins with these bytes
	for plain < len(local) && partOfWord(local[plain]) && local[plain] < utf8.RuneSelf {
		plain++
	}
	if plain == len(local) {
		return without(text, local)
	}
	if plain > 0 && !hasFolded(local) && !mayHold(text, local, plain) {
		return text
	}
	for _, form := range formsOf(local) {
		text = without(text, form)
	}
	return text
}

// mayHold quickly reports whether a text may contain a form of a local part. mayHold looks for the first plain bytes.
func mayHold(text, local string, plain int) bool {
	next := strings.TrimLeft(local[plain:], "._-")
	for from := 0; ; {
		at := strings.Index(text[from:], local[:plain])
		if at < 0 {
			return false
		}
		from += at + 1
		start, end := from-1, from-1+plain
		if start > 0 && partOfWord(text[start-1]) {
			continue
		}
		if end == len(text) || !partOfWord(text[end]) || next != "" && text[end] == next[0] {
			return true
		}
	}
}

// without removes a word from a text, unless it is one of plainWords.
func without(text, word string) string {
	at := wordAt(text, word, 0)
	if at < 0 || slices.Contains(plainWords, word) {
		return text
	}
	var b strings.Builder
	from := 0
	for ; at >= 0; at = wordAt(text, word, from) {
		b.WriteString(text[from:at])
		b.WriteByte('~')
		from = at + len(word)
	}
	b.WriteString(text[from:])
	return b.String()
}

var (
	// folds are the ASCII spellings of other letters: as one letter, and as several.
	folds = [...]*strings.Replacer{
		strings.NewReplacer("ä", "a", "ö", "o", "ü", "u", "ß", "s", "å", "a", "æ", "a", "ø", "o", "é", "e", "è", "e",
			"ê", "e", "ë", "e", "á", "a", "à", "a", "â", "a", "ã", "a", "í", "i", "î", "i", "ó", "o", "ô", "o",
			"õ", "o", "ú", "u", "û", "u", "ç", "c", "ñ", "n", "ł", "l"),
		strings.NewReplacer("ä", "ae", "ö", "oe", "ü", "ue", "ß", "ss", "å", "aa", "æ", "ae", "ø", "oe"),
	}

	// separators are characters that some receivers leave out of local parts, or replace with spaces.
	separators = [...]*strings.Replacer{strings.NewReplacer(".", "", "_", "", "-", ""),
		strings.NewReplacer(".", " ", "_", " ", "-", " ")}
)

// hasFolded reports whether a local part may be spelled with other letters.
func hasFolded(local string) bool {
	return strings.IndexFunc(local, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0
}

// formsOf returns the forms that receivers make of a local part, in lower case, longest first: without the part after +
// or =, without separators, with ASCII letters, and encoded for headers, URLs and shells.
func formsOf(local string) []string {
	forms := []string{local}
	if at := strings.IndexAny(local, "+="); at > 1 {
		forms = append(forms, local[:at])
	}
	add := func(with func(string) string) {
		for _, one := range forms[:len(forms):len(forms)] {
			if other := with(one); len(other) > 1 && !slices.Contains(forms, other) {
				forms = append(forms, other)
			}
		}
	}
	spelled := len(forms)
	if hasFolded(local) {
		add(folds[0].Replace)
		add(folds[1].Replace)
	}
	add(separators[0].Replace)
	add(separators[1].Replace)
	for _, one := range forms[:spelled:spelled] {
		for _, other := range [...]string{encoded(one, "%", "._-~"), encoded(one, "=", "._-~"),
			encoded(one, "=", "._-~!#$%&'*+/?^`{|}"), encoded(one, "\\", "._-~")} {
			if !slices.Contains(forms, other) {
				forms = append(forms, other)
			}
		}
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	return forms
}

// encoded escapes each byte of a local part that is neither a letter or digit nor in keeps: with a mark and its number,
// or with a backslash alone.
func encoded(local, mark, keeps string) string {
	var b strings.Builder
	for i := range len(local) {
		c := local[i]
		switch {
		case c < utf8.RuneSelf && (partOfWord(c) || strings.IndexByte(keeps, c) >= 0),
			mark == "\\" && c >= utf8.RuneSelf:
			b.WriteByte(c)
		case mark == "\\":
			b.WriteString(mark)
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%s%02x", mark, c)
		}
	}
	return b.String()
}

// wordAt returns the index of a word in a text, searched from an index on; below 0: the word isn't there.
func wordAt(text, word string, from int) int {
	for from+len(word) <= len(text) {
		at := strings.Index(text[from:], word)
		if at < 0 {
			return -1
		}
		at += from
		end := at + len(word)
		if (at == 0 || !partOfWord(text[at-1])) && (end == len(text) || !partOfWord(text[end])) {
			return at
		}
		from = at + 1
	}
	return -1
}

// partOfWord reports whether a byte of a cleaned text is part of a word.
func partOfWord(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 0x80 }

// shownMax bounds a text for people.
const shownMax = 200

// Clip cuts a text for people to at most shownMax bytes. Clip doesn't split a character.
func Clip(text string) string {
	if len(text) <= shownMax {
		return text
	}
	end := shownMax - len("…")
	for end > 0 && text[end]&0xc0 == 0x80 {
		end--
	}
	return text[:end] + "…"
}
