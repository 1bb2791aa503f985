package evidence

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"rollcall/smtp"
)

// TextMax bounds the text of an attempt.
const TextMax = headBytes + tailBytes

// headBytes and tailBytes bound how much of a long reply is kept: its beginning,
// and the end of its last line, where some receivers put what matters.
const (
	headBytes = 640
	tailBytes = 384
)

// The marks stand for what is taken out of a text. None is part of a word, so that a
// phrase is found across it.
const (
	// MarkAsked stands for the address that was asked, or its local part: what is said of
	// it is said of the mailbox.
	MarkAsked = '^'

	// MarkOurs stands for our hello name, our return path's domain or local part, and
	// addresses at either name: what is said of these is said of us.
	MarkOurs = '\\'

	// mark stands for all else: addresses of others, our IP address, the domain that was
	// asked, tickets, bytes of no charset that fits, and what is left out of a long reply.
	mark = '~'
)

func lowerHost(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// Clean returns the text of a reply as it is judged and kept: lower case, UTF-8, one
// line, at most TextMax bytes. What we brought along ourselves is taken out, so that
// nobody is refused because of how an address is spelled; addresses of others and
// the numbers of tickets too, since they are nobody's business. Cleaning what is
// clean changes nothing.
func Clean(r Raw) string {
	var buffer [TextMax + 1]byte
	text := join(buffer[:0], readable(r.Reply.Lines, lowerHost(r.Host)))
	names := ours(&r)
	if bytes.IndexByte(text, '@') >= 0 {
		text = withoutAddresses(text, &names)
	}
	for {
		var named, cut, numbered bool
		for _, n := range names.list[:names.n] {
			text, named = without(text, n, named)
		}
		text, cut = withoutSource(text, names.source)
		text, numbered = withoutTickets(text)
		// What was taken out may have hidden more: a name that holds a mark, or one
		// that stood right beside our source or a ticket.
		if !cut && !(named && names.marked) && !(numbered && names.source.Is6()) {
			return string(text)
		}
	}
}

// join makes one line of the reply, with a mark for what is left out of its middle.
func join(buf []byte, lines []string) []byte {
	size := len(lines)
	for _, line := range lines {
		size += len(line)
	}
	if size <= TextMax {
		for _, line := range lines {
			buf = appendPlain(append(buf, ' '), line)
		}
		return trim(buf)
	}
	for _, line := range lines {
		room := headBytes - len(buf)
		if room <= 0 {
			break
		}
		if len(line) > room { // whole words, so that no piece of an address stays
			line = line[:strings.LastIndexAny(line[:room], " \t")+1]
			buf = appendPlain(append(buf, ' '), line)
			break
		}
		buf = appendPlain(append(buf, ' '), line)
	}
	last := lines[len(lines)-1]
	if len(last) > tailBytes-4 {
		last = last[len(last)-(tailBytes-4):]
		last = last[strings.IndexAny(last+" ", " \t"):]
	}
	return trim(appendPlain(append(buf, ' ', mark, ' '), last))
}

// trim takes the spaces off that are there twice or at the ends, and bounds the text.
func trim(text []byte) []byte {
	n := 0
	for i, c := range text {
		if c != ' ' || n > 0 && text[n-1] != ' ' {
			text[n] = text[i]
			n++
		}
	}
	text = text[:min(n, TextMax)]
	for len(text) > 0 {
		if r, size := utf8.DecodeLastRune(text); r != ' ' && (r != utf8.RuneError || size > 1) {
			break
		}
		text = text[:len(text)-1]
	}
	return text
}

// appendPlain appends line in lower case, with spaces for control characters, a mark
// for each byte that is not UTF-8, and "@" however it is written.
func appendPlain(buf []byte, line string) []byte {
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '%' && strings.HasPrefix(line[i:], "%40"): // RFC 3986 §2.1
			buf = append(buf, '@')
			i += 2
		case c <= ' ' || c == 0x7f:
			buf = append(buf, ' ')
		case c < utf8.RuneSelf:
			buf = append(buf, lower(c))
		default:
			r, size := utf8.DecodeRuneInString(line[i:])
			switch small := unicode.ToLower(r); {
			case r == utf8.RuneError:
				buf = append(buf, mark)
			case r == '\uff20': // the full width form
				buf = append(buf, '@')
			case unicode.IsControl(r) || unicode.IsSpace(r) || unicode.Is(unicode.Cf, r): // format: unseen
				buf = append(buf, ' ')
			case utf8.RuneLen(small) <= size:
				buf = utf8.AppendRune(buf, small)
			default:
				buf = utf8.AppendRune(buf, r)
			}
			i += size - 1
		}
	}
	return buf
}

// withoutAddresses leaves no "@": each goes with what is on its left and right, and
// leaves the mark of whose address it is.
func withoutAddresses(text []byte, names *names) []byte {
	for from := 0; ; {
		at := bytes.IndexByte(text[from:], '@')
		if at < 0 {
			return text
		}
		at += from
		left, right := localStart(text, at), at+1
		if left < at {
			if link := linkStart(text[:at]); link < 0 || bytes.IndexByte(text[link:at], '/') >= 0 {
				right = domainEnd(text, at+1)
			} // else a user in front of a host, which stays
		}
		left, right = names.asked.edges(text, left, at, right)
		m := names.markOf(text[left:at], text[min(at+1, right):right])
		text = append(append(text[:left], m), text[right:]...)
		from = left + 1
	}
}

// linkStart returns where the authority of a URL begins in which text ends, without a
// space in between; below 0: it ends in none.
func linkStart(text []byte) int {
	word := text[bytes.LastIndexByte(text, ' ')+1:]
	i := bytes.LastIndex(word, []byte("://"))
	if i < 0 {
		return -1
	}
	return len(text) - len(word) + i + 3
}

// localStart returns where the local part begins that ends before at.
func localStart(text []byte, at int) int {
	if at > 1 && text[at-1] == '"' { // a quoted string (RFC 5321 §4.1.2)
		if open := bytes.LastIndexByte(text[:at-1], '"'); open >= 0 {
			return open
		}
	}
	within := `~.!#$%&'*+-/=?^_{|}` + "`" // atext (RFC 5322 §3.2.3)
	if link := linkStart(text[:at]); link >= 0 {
		within = "~.!$'*+-_%:" // what stands between other signs of a URL
		if bytes.IndexByte(text[link:at], '/') < 0 {
			return link
		}
	}
	for at > 0 && (isWordByte(text[at-1]) || strings.IndexByte(within, text[at-1]) >= 0) {
		at--
	}
	return at
}

// domainEnd returns where the domain, or address literal, ends that begins at from.
func domainEnd(text []byte, from int) int {
	if from < len(text) && text[from] == '[' {
		if end := bytes.IndexByte(text[from:], ']'); end >= 0 {
			return from + end + 1
		}
	}
	end := from
	for end < len(text) && (isWordByte(text[end]) || text[end] == '.' || text[end] == '-' || text[end] == '_') {
		if text[end] == '.' && end > from && text[end-1] == '.' { // an ellipsis behind it
			break
		}
		end++
	}
	for end > from && text[end-1] == '.' { // of the sentence
		end--
	}
	return end
}

// names is what we brought along ourselves.
type names struct {
	asked  asked
	ours   [2]string // domains of ours
	list   [10]name
	n      int
	source netip.Addr
	marked bool // a name holds a mark
}

// asked is the address that was asked, as it would be in a text.
type asked struct{ local, domain string }

// edges returns where the address ends that stands around at, from left to right, if it is the one that was asked and
// letters of a script without spaces, or signs such as „ and 」, touch it: they are the sentence's.
func (a *asked) edges(text []byte, left, at, right int) (int, int) {
	start, end := at-len(a.local), at+1+len(a.domain)
	if a.local == "" || a.domain == "" || start < left || end > right ||
		string(text[start:at]) != a.local || string(text[at+1:end]) != a.domain {
		return left, right
	}
	before, _ := utf8.DecodeLastRune(text[left:start])
	after, _ := utf8.DecodeRune(text[end:right])
	if start > left && (!isSentence(before) || text[start] >= utf8.RuneSelf) ||
		end < right && (!isSentence(after) || text[end-1] >= utf8.RuneSelf) {
		return left, right
	}
	return start, end
}

// unspaced are the scripts that write words without spaces between them.
var unspaced = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai,
	unicode.Lao}

// isSentence reports whether r is of the sentence around an address in ASCII, and no part of it.
func isSentence(r rune) bool {
	isLetter := unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r)
	return r >= utf8.RuneSelf && r != utf8.RuneError && (!isLetter || unicode.In(r, unspaced...))
}

// name is a name as it would be in a text, and the mark that is left of it.
type name struct {
	text string
	mark byte
}

func ours(r *Raw) names {
	var o names
	o.source, _ = netip.ParseAddr(r.Source)
	o.source = o.source.Unmap().WithZone("")
	if o.source.Is4() {
		a := o.source.As4()
		reversed := netip.AddrFrom4([4]byte{a[3], a[2], a[1], a[0]}).String()
		for _, text := range []string{o.source.String(), reversed} {
			o.add(text, mark)
			o.add(strings.ReplaceAll(text, ".", "-"), mark) // as PTR names have it
		}
	} else if o.source.IsValid() {
		o.add(nibbles(o.source), mark)
	} else {
		o.add(r.Source, mark)
	}
	o.asked.domain = o.add(r.Address.Domain, mark)
	o.asked.local = plain(r.Address.Local)
	o.addLocal(o.asked.local, MarkAsked)
	o.ours[0] = o.add(r.Hello, MarkOurs)
	if r.ReturnPath != (smtp.Address{}) {
		o.ours[1] = o.add(r.ReturnPath.Domain, MarkOurs)
		o.addLocal(plain(r.ReturnPath.Local), MarkOurs)
	}
	return o
}

// markOf returns the mark of an address. That which was asked may stand behind a quotation
// mark, or be the value of a word, such as "to=": these may be parts of local parts too.
func (o *names) markOf(local, domain []byte) byte {
	if len(domain) == 0 {
		return mark
	}
	if string(domain) == o.asked.domain {
		before, found := bytes.CutSuffix(local, []byte(o.asked.local))
		if last := len(before) - 1; found && o.asked.local != "" && (last < 0 ||
			strings.IndexByte("'`=*{|/", before[last]) >= 0 && oneWord(string(before[:last]))) {
			return MarkAsked
		}
	}
	if slices.Contains(o.ours[:], string(domain)) {
		return MarkOurs
	}
	return mark
}

// addLocal: "user" and "-user" are words of replies too, but "no.such.user" would
// read as a phrase.
func (o *names) addLocal(local string, m byte) {
	if inner := withoutEnds(local); !oneWord(inner) {
		o.put(inner, m)
	}
}

// add adds a name and gives it as it would be in a text.
func (o *names) add(text string, m byte) string {
	name := withoutEnds(plain(text))
	if name != "" {
		o.put(name, m)
	}
	return name
}

func (o *names) put(plain string, m byte) {
	o.list[o.n] = name{plain, m}
	o.n++
	o.marked = o.marked || strings.IndexFunc(plain, isMark) >= 0
}

func isMark(r rune) bool { return r == mark || r == MarkAsked || r == MarkOurs }

// plain returns a name in the form in which it would be in a text.
func plain(name string) string {
	if name == "" {
		return ""
	}
	return string(trim(appendPlain(make([]byte, 0, len(name)), name)))
}

// withoutEnds takes off what is no part of a word at the ends of a name.
func withoutEnds(name string) string {
	return strings.TrimFunc(name, func(r rune) bool { return r < utf8.RuneSelf && !isWordByte(byte(r)) })
}

// nibbles is the form of an IPv6 address in reverse zones (RFC 3596 §2.5).
func nibbles(a netip.Addr) string {
	const digits = "0123456789abcdef"
	b := a.As16()
	var text [63]byte
	for i := range b {
		at := 4 * (len(b) - 1 - i)
		text[at], text[at+2] = digits[b[i]&15], digits[b[i]>>4]
		text[at+1] = '.'
		if at+3 < len(text) {
			text[at+3] = '.'
		}
	}
	return string(text[:])
}

// without takes each place out where name stands, unless it is the inside of a
// longer word.
func without(text []byte, n name, changed bool) ([]byte, bool) {
	for from := 0; from+len(n.text) <= len(text); {
		at := bytes.Index(text[from:], []byte(n.text))
		if at < 0 {
			break
		}
		at += from
		end := at + len(n.text)
		if at > 0 && isWordByte(text[at-1]) || end < len(text) && isWordByte(text[end]) {
			from = at + 1
			continue
		}
		text = append(append(text[:at], n.mark), text[end:]...)
		from, changed = at+1, true
	}
	return text, changed
}

// withoutSource takes an IPv6 address out however it is spelled (RFC 4291 §2.2),
// and reports whether it was there.
func withoutSource(text []byte, source netip.Addr) (_ []byte, cut bool) {
	if !source.Is6() || bytes.IndexByte(text, ':') < 0 {
		return text, false
	}
	isPart := func(c byte) bool { return isHex(c) || c == ':' || c == '.' }
	for i := 0; i < len(text); i++ {
		if !isPart(text[i]) || i > 0 && isPart(text[i-1]) {
			continue
		}
		end := i
		for end < len(text) && isPart(text[end]) {
			end++
		}
		start := i
		if bytes.HasPrefix(text[i:], []byte("6:")) && bytes.HasSuffix(text[:i], []byte("ipv")) {
			start += 2 // RFC 5321 §4.1.3: [IPv6:2001:db8::1]
		}
		for stop := end; stop > start; stop-- { // punctuation may follow
			if c := text[stop-1]; stop < end && text[stop] != ':' && text[stop] != '.' {
				break
			} else if c == '.' {
				continue
			}
			found, err := netip.ParseAddr(string(text[start:stop]))
			if err == nil && found == source {
				text = append(append(text[:start], mark), text[stop:]...)
				cut = true
				break
			}
		}
	}
	return text, cut
}

// ticketBytes is the size from which a word that mixes letters and digits is the
// number of a ticket. Codes of receivers that rules look for are shorter.
const ticketBytes = 12

// withoutTickets takes the numbers of tickets, sessions and mails out, and reports
// whether there were any.
func withoutTickets(text []byte) (_ []byte, found bool) {
	n := 0
	for i := 0; i < len(text); {
		end, word := i, ticket{hex: true}
		for end < len(text) && (isWordByte(text[end]) || text[end] == '-') {
			word.see(text[end])
			end++
		}
		switch {
		case end == i:
			text[n] = text[i]
			n, i = n+1, i+1
			continue
		case word.hex && word.letters && word.digits && end-i >= ticketBytes: // such as a UUID (RFC 9562)
			text[n] = mark
			n++
		default:
			n += withoutLong(text[n:], text[i:end])
		}
		i = end
	}
	return text[:n], n < len(text)
}

// withoutLong copies words with hyphens between them, with marks for those that
// are tickets; to may overlap the beginning of words.
func withoutLong(to, words []byte) int {
	n := 0
	for len(words) > 0 {
		end, word := 0, ticket{}
		for end < len(words) && words[end] != '-' {
			word.see(words[end])
			end++
		}
		if word.letters && word.digits && end >= ticketBytes {
			to[n] = mark
			n++
		} else {
			n += copy(to[n:], words[:end])
		}
		if words = words[end:]; len(words) > 0 {
			to[n] = '-'
			n, words = n+1, words[1:]
		}
	}
	return n
}

// ticket is what is known of a word.
type ticket struct{ letters, digits, hex bool }

func (t *ticket) see(c byte) {
	t.digits = t.digits || isDigit(c)
	t.letters = t.letters || c >= 'a' && c <= 'z'
	t.hex = t.hex && (isHex(c) || c == '-')
}

func oneWord(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isWordByte(lower(s[i])) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// isWordByte reports whether c, in lower case, is part of a word; all else only
// stands between words.
func isWordByte(c byte) bool {
	return (c >= 'a' && c <= 'z') || isDigit(c) || c >= utf8.RuneSelf
}

func isHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
