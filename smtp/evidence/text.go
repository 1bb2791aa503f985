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

// headBytes and tailBytes bound a long reply: its beginning is kept, and the end of its last line, where some receivers
// put the important part.
const (
	headBytes = 640
	tailBytes = 384
)

// The marks replace what is removed from a text. None is part of a word, so a phrase is found across it.
const (
	// MarkAsked replaces the asked address or its local part: what is said about it is said about the mailbox.
	MarkAsked = '^'

	// MarkOurs replaces our hello name, our return path's domain or local part, and addresses at either name: a reply
	// about these is about us.
	MarkOurs = '\\'

	// mark replaces everything else: addresses of others, our IP address, the asked domain, tickets, undecodable
	// bytes, and the middle of a long reply.
	mark = '~'
)

func lowerHost(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// Clean returns the text of a reply as it is judged and stored: lower case, UTF-8, one line, at most TextMax bytes.
// It removes names that we sent, so that the spelling of an address cannot cause a refusal, and addresses of others
// and ticket numbers for privacy. Cleaning a clean text changes nothing.
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
		// A second pass may find more: a name that contains a mark, or one right beside our source or a ticket.
		if !cut && !(named && names.marked) && !(numbered && names.source.Is6()) {
			return string(text)
		}
	}
}

// join makes one line of the reply, with a mark for the omitted middle.
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

// trim removes repeated spaces and those at the ends, and bounds the text.
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

// appendPlain appends line in lower case, with spaces for control characters, a mark for each byte that is not
// UTF-8, and "@" for all its spellings.
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
			case unicode.IsControl(r) || unicode.IsSpace(r) || unicode.Is(unicode.Cf, r): // format characters are invisible
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

// withoutAddresses replaces each "@" and the text on its left and right by the mark of that address.
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
			} // else a user before a host name, which stays
		}
		left, right = names.asked.edges(text, left, at, right)
		m := names.markOf(text[left:at], text[min(at+1, right):right])
		text = append(append(text[:left], m), text[right:]...)
		from = left + 1
	}
}

// linkStart returns the start of the URL authority that the text ends with, without a space in between; -1 if there
// is none.
func linkStart(text []byte) int {
	word := text[bytes.LastIndexByte(text, ' ')+1:]
	i := bytes.LastIndex(word, []byte("://"))
	if i < 0 {
		return -1
	}
	return len(text) - len(word) + i + 3
}

// localStart returns the start of the local part that ends before at.
func localStart(text []byte, at int) int {
	if at > 1 && text[at-1] == '"' { // a quoted string (RFC 5321 §4.1.2)
		if open := bytes.LastIndexByte(text[:at-1], '"'); open >= 0 {
			return open
		}
	}
	within := `~.!#$%&'*+-/=?^_{|}` + "`" // atext (RFC 5322 §3.2.3)
	if link := linkStart(text[:at]); link >= 0 {
		within = "~.!$'*+-_%:" // allowed between other signs of a URL
		if bytes.IndexByte(text[link:at], '/') < 0 {
			return link
		}
	}
	for at > 0 && (IsWordByte(text[at-1]) || strings.IndexByte(within, text[at-1]) >= 0) {
		at--
	}
	return at
}

// domainEnd returns the end of the domain or address literal that begins at from.
func domainEnd(text []byte, from int) int {
	if from < len(text) && text[from] == '[' {
		if end := bytes.IndexByte(text[from:], ']'); end >= 0 {
			return from + end + 1
		}
	}
	end := from
	for end < len(text) && (IsWordByte(text[end]) || text[end] == '.' || text[end] == '-' || text[end] == '_') {
		if text[end] == '.' && end > from && text[end-1] == '.' { // an ellipsis after it
			break
		}
		end++
	}
	for end > from && text[end-1] == '.' { // of the sentence
		end--
	}
	return end
}

// names are the names that we sent.
type names struct {
	asked  asked
	ours   [2]string // domains of ours
	list   [10]name
	n      int
	source netip.Addr
	marked bool // a name contains a mark
}

// asked is the asked address as it appears in a text.
type asked struct{ local, domain string }

// edges returns the ends of the address around at. For the asked address it excludes adjacent letters of a script
// without spaces and signs such as „ and 」: they belong to the sentence.
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

// isSentence reports whether r belongs to the sentence around an ASCII address, not to the address.
func isSentence(r rune) bool {
	isLetter := unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r)
	return r >= utf8.RuneSelf && r != utf8.RuneError && (!isLetter || unicode.In(r, unspaced...))
}

// name is a name as it appears in a text, and the mark that replaces it.
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
			o.add(strings.ReplaceAll(text, ".", "-"), mark) // as in PTR names
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

// markOf returns the mark of an address. A quotation mark or a word such as "to=" may precede the asked address,
// although these could also be part of a local part.
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

// addLocal adds forms of a local part. "user" and "-user" are also words of replies, but "no.such.user" would read
// as a phrase.
func (o *names) addLocal(local string, m byte) {
	if inner := withoutEnds(local); !oneWord(inner) {
		o.put(inner, m)
	}
}

// add adds a name and returns it as it appears in a text.
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

func plain(name string) string {
	if name == "" {
		return ""
	}
	return string(trim(appendPlain(make([]byte, 0, len(name)), name)))
}

// withoutEnds removes characters at the ends of a name that are not part of a word.
func withoutEnds(name string) string {
	return strings.TrimFunc(name, func(r rune) bool { return r < utf8.RuneSelf && !IsWordByte(byte(r)) })
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

// without replaces name wherever it stands in text, except inside a longer word.
func without(text []byte, n name, changed bool) ([]byte, bool) {
	for from := 0; from+len(n.text) <= len(text); {
		at := bytes.Index(text[from:], []byte(n.text))
		if at < 0 {
			break
		}
		at += from
		end := at + len(n.text)
		if at > 0 && IsWordByte(text[at-1]) || end < len(text) && IsWordByte(text[end]) {
			from = at + 1
			continue
		}
		text = append(append(text[:at], n.mark), text[end:]...)
		from, changed = at+1, true
	}
	return text, changed
}

// withoutSource removes an IPv6 address in any spelling (RFC 4291 §2.2), and reports whether it was there.
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

// ticketBytes is the length from which a word with letters and digits counts as a ticket number. Receivers' codes
// that rules look for are shorter.
const ticketBytes = 12

// withoutTickets removes the numbers of tickets, sessions and mails, and reports whether there were any.
func withoutTickets(text []byte) (_ []byte, found bool) {
	n := 0
	for i := 0; i < len(text); {
		end, word := i, ticket{hex: true}
		for end < len(text) && (IsWordByte(text[end]) || text[end] == '-') {
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

// withoutLong copies hyphenated words, with marks for tickets. to may overlap the beginning of words.
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

// ticket collects the features of a word.
type ticket struct{ letters, digits, hex bool }

func (t *ticket) see(c byte) {
	t.digits = t.digits || isDigit(c)
	t.letters = t.letters || c >= 'a' && c <= 'z'
	t.hex = t.hex && (isHex(c) || c == '-')
}

func oneWord(s string) bool {
	for i := 0; i < len(s); i++ {
		if !IsWordByte(lower(s[i])) {
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

// IsWordByte reports whether c, in lower case, is part of a word. All other bytes separate words.
func IsWordByte(c byte) bool {
	return (c >= 'a' && c <= 'z') || isDigit(c) || c >= utf8.RuneSelf
}

func isHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
