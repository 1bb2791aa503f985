package receiver

import "strings"

// plainWords are words of replies. An address with such a local part gives nothing away
// when it is said, and rules look for them.
var plainWords = func() map[string]bool {
	list := map[string]bool{}
	for _, w := range strings.Fields(`a an and as at be by do for from go if in is it me my no not of off ok on or
		our so the this to up us was we with you your
		abuse access account address admin again allowed auth bad blocked block busy check client closed closing
		command connection contact data denied disabled does domain email error exist failed found full greylisted
		host hostmaster inbox invalid ip ipv4 ipv6 later limit list local mail mailbox mailer many message messages
		mx name new open policy postmaster provider quota rate rcpt receiver recipient recipients refused reject
		rejected relay reply retry root sender server service session smtp source spam support system temporary test
		tls too transaction try unavailable unknown user users verify virtual webmaster`) {
		list[w] = true
	}
	return list
}()

// scrub takes the local part of the address that was asked for out of a cleaned text,
// where it stands as a word. Cleaning leaves those that are one word where they are,
// because rules look at words; people and records need none.
func scrub(text, local string) string {
	if local == "" || text == "" {
		return text
	}
	local = strings.ToLower(local)
	at := wordAt(text, local, 0)
	if at < 0 || plainWords[local] {
		return text
	}
	var b strings.Builder
	from := 0
	for ; at >= 0; at = wordAt(text, local, from) {
		b.WriteString(text[from:at])
		b.WriteByte('~')
		from = at + len(local)
	}
	b.WriteString(text[from:])
	return b.String()
}

// wordAt gives where a word stands in a text, from a place on; below 0: nowhere.
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

// partOfWord says whether a byte of a cleaned text is part of a word.
func partOfWord(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 0x80 }
