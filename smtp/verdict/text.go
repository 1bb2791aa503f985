package verdict

import (
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"rollcall/smtp/evidence"
)

// waitMax bounds the wait that a receiver names: it is longer than any known greylisting (RFC 6647 §4.2 advises
// minutes), and a file should be done in a day.
const waitMax = 24 * time.Hour

// namedWait returns the wait that text names: "300 seconds", "5 min", "1 hour and 30 minutes", "00:14:55". 0 when it
// names none; at most waitMax.
func namedWait(text string) time.Duration {
	for i := 0; i < len(text); i++ {
		if !isDigit(text[i]) || (i > 0 && (evidence.IsWordByte(text[i-1]) || text[i-1] == '.')) {
			continue
		}
		if wait, ok := clockWait(text[i:]); ok {
			return min(wait, waitMax)
		}
		wait, unit, n := amount(text[i:])
		if n == 0 {
			continue
		}
		rest := text[i+n:]
		for len(rest) > 0 && (rest[0] == ' ' || rest[0] == ',') {
			rest = rest[1:]
		}
		rest = strings.TrimPrefix(rest, "and ")
		if more, smaller, m := amount(rest); m > 0 && smaller < unit {
			wait += more
		}
		return min(wait, waitMax)
	}
	return 0
}

// clockWait reads hh:mm:ss.
func clockWait(text string) (time.Duration, bool) {
	if len(text) < 8 || text[2] != ':' || text[5] != ':' || (len(text) > 8 && evidence.IsWordByte(text[8])) {
		return 0, false
	}
	var wait time.Duration
	for i, unit := range [...]time.Duration{time.Hour, time.Minute, time.Second} {
		high, low := text[3*i], text[3*i+1]
		if !isDigit(high) || !isDigit(low) {
			return 0, false
		}
		wait += time.Duration(high-'0')*10*unit + time.Duration(low-'0')*unit
	}
	return wait, true
}

// units are the words for a unit of time. A single letter must follow its number at once.
var units = [...]struct {
	word string
	unit time.Duration
}{
	{"s", time.Second}, {"sec", time.Second}, {"secs", time.Second},
	{"second", time.Second}, {"seconds", time.Second},
	{"m", time.Minute}, {"min", time.Minute}, {"mins", time.Minute},
	{"minute", time.Minute}, {"minutes", time.Minute},
	{"h", time.Hour}, {"hr", time.Hour}, {"hrs", time.Hour}, {"hour", time.Hour}, {"hours", time.Hour},
}

// amount reads a number and its unit from the start of text; n is their length, 0 when there is none.
func amount(text string) (wait, unit time.Duration, n int) {
	number := 0
	for n < len(text) && n < 6 && isDigit(text[n]) { // six digits: waitMax is 86400 seconds
		number = number*10 + int(text[n]-'0')
		n++
	}
	digits := n
	for n < len(text) && (text[n] == ' ' || text[n] == '-') {
		n++
	}
	end := n
	for end < len(text) && evidence.IsWordByte(text[end]) {
		end++
	}
	if digits == 0 {
		return 0, 0, 0
	}
	for _, u := range units {
		if text[n:end] == u.word && (len(u.word) > 1 || n == digits) {
			return time.Duration(number) * u.unit, u.unit, end
		}
	}
	return 0, 0, 0
}

const letters = "abcdefghijklmnopqrstuvwxyz" // of cleaned texts

// withoutLinks removes the links from a cleaned text: "https://a.example/b", and without a scheme "www.a.example"
// and "a.example/b". A link ends before a space, a quotation mark or a closing bracket.
func withoutLinks(text string) string {
	if !strings.Contains(text, "/") && !strings.Contains(text, "www.") {
		return text
	}
	var plain strings.Builder
	kept := 0
	for at := 0; at < len(text); {
		start, end := at, hostEnd(text, at)
		switch rest := text[end:]; {
		case end == at:
			at++
			continue
		case strings.HasPrefix(rest, "://"), isLinkedHost(text[start:end], rest):
			if strings.HasPrefix(rest, "://") { // a scheme, perhaps with a word right before it
				start += len(strings.TrimRight(text[start:end], letters))
			}
			at = end + strings.IndexAny(rest+" ", " <>\")]}")
			plain.WriteString(text[kept:start])
			kept = at
		default:
			at = end
		}
	}
	if kept == 0 {
		return text
	}
	plain.WriteString(text[kept:])
	return plain.String()
}

// hostEnd returns the end of the letters, digits, dots and hyphens that begin at from.
func hostEnd(text string, from int) int {
	for from < len(text) && (evidence.IsWordByte(text[from]) || text[from] == '.' || text[from] == '-') {
		from++
	}
	return from
}

// isLinkedHost reports whether a name without a scheme is the host of a link, by its first label or by the path
// after it. Its last label must have only letters, so 5.1.1 is no host.
func isLinkedHost(name, rest string) bool {
	if strings.HasPrefix(name, "www.") {
		return true
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	return len(last) > 1 && len(last) < len(name)-1 && strings.Trim(last, letters) == "" &&
		len(rest) > 1 && rest[0] == '/' && rest[1] != ' '
}

// domainAsides say in which domain a mailbox is.
const domainAsides = `|(^| )(in|at|on|within) (this|our|the|that) domain` +
	`|(^| )(in (diesem|dieser|der)|im) (domain|domane)` +
	`|(^| )(nel|in questo|en (este|el|nuestro)|neste|nesse|no) dominio|(^| )(dans|sur) (ce|le) domaine` +
	`|(^| )in (deze|dit|het) domein|(^| )w (tej|tym) domenie|(^| )v (tomto|teto|tejto|tem) domen[eu]` +
	`|(^| )в (этом|данном) домене|(^| )у цьому домені`

// directoryAsides say in which list of users a mailbox is missing.
const directoryAsides = `|(^| )(im|in (unserem|der|het|de|onze)|nella|v|w|dans (l|notre|le)|en (el|la|nuestro)` +
	`|no|i|в|у).(adressbuch|adressliste|verzeichnis|rubrica|adresari|katalogu|annuaire|carnet d.adresses` +
	`|repertoire|directorio|libreta de direcciones|diretorio|catalogo|ksiazce adresowej|adresboek` +
	`|адресной книге|каталоге|справочнике)`

// asides finds parts of a sentence about a mailbox that are about servers and errors: where the mailbox is, and
// introductions.
var asides = regexp.MustCompile(`(^|[^a-zа-я])(((smtp|delivery|server|lmtp|mail) )?(error|failure|failed)|fehler|` +
	`erreur|errore?|erro|ошибка|blad|reason|grund|motivo|motif|причина) ?:` +
	`|(^| )(on|at|in|by|to|with|from) (this|our|the|that|my|any) ([a-z0-9-]+ ){0,3}` +
	`(server|system|service|database|record|table|site|machine)s?( |[.,;:!)]|$)` + domainAsides +
	`|(^| )(user|recipient|mailbox|account|rcpt|ldap|ad|directory) lookup` +
	`|(^| )(from|out of|in) service|smtp address` +
	`|(^| )(with|for|in|from) (the |our |)(smtp|pop3?|imap|e?-?mail) service` +
	`|(alias|virtual|recipient|mailbox|user|passwd) (table|map|record|file)` +
	`|(^| )service (for|of) (this|that|the) (user|account|mailbox|subscriber|customer)` +
	`|(^| )delivery (target|address|destination|(is |was |)(not possible|impossible)` +
	`|to (this|that|the) (account|user|mailbox|address|recipient))` +
	`|(^| )(auf|an|bei) (diesem|unserem|dem) (mail|)server` + `|(^| )(på|på denne|på den här) (servern|serveren|server)` +
	`|(^| )(sur|par) (ce|notre|le) serveur( de messagerie| mail|)` +
	`|(^| )en (este|nuestro|el) servidor( de correo|)|(^| )(neste|no|nesse|nosso) servidor( de e-?mail|)` +
	`|(^| )(su|in|da) (questo|nostro) server|(^| )(sul|nel) server|(^| )(op|bij) (deze|onze) server` +
	`|(^| )на ((этом|нашем|данном|цьому|нашому) |)сервер[еі]` +
	`|(^| )na ((tym|naszym|tomto|tem|ovom|našem) |)serw?[ev]r(ze|u|i)|(^| )pe (acest server|serverul nostru)`)

func withoutAsides(text string) string { return asides.ReplaceAllString(spoken(text), " ") }

// conditions finds conditional clauses in English; other languages have theirs in languages.txt.
var conditions = regexp.MustCompile(`(^|[^.,:;!?()]*[^a-z.,:;!?()])` +
	`(if|whether|unless|whenever|in case|when (a|an|the|that|your|no|any|such)) [^.,:;!?()]*`)

func withoutConditions(text string) string {
	for _, word := range [...]string{"if ", "whe", "unless", "in case"} {
		if strings.Contains(text, word) {
			return conditions.ReplaceAllString(text, " ")
		}
	}
	return text
}

// courtesies finds requests to the reader and similar words in a sentence about a mailbox.
var courtesies = regexp.MustCompile(`(^|[^a-z])(please|kindly|pls|plz) (also |do |)` +
	`(verify|check|double|re-?check|correct|confirm|contact|ask|inform|advise|review|remove|update|make sure|ensure)[^.;]*` +
	`|(^| )(that |whom |)you( are| re| were| have| ve|) ` +
	`(writing|trying|tried|attempting|attempted|written|wrote|addressed)` +
	`( to (reach|contact|send|mail|e-?mail|deliver))*( to)?` +
	`|(^| )(for|since|in) (more than|over) [a-z0-9]+ (day|week|month|year)s?` + domainAsides + directoryAsides)

// withoutCourtesies removes from a text requests to the reader, durations, and the domain or list that a mailbox is in.
func withoutCourtesies(text string) string {
	for _, part := range [...]string{"pl", "kindly", "dom", "дом", "you ", "more than ", "over ", "adr", "адр", "ver",
		"rubrica", "kat", "катал", "direct", "annuaire", "carnet", "libreta"} {
		if strings.Contains(text, part) {
			return courtesies.ReplaceAllString(text, " ")
		}
	}
	return text
}

// unspaced are scripts without spaces between words, or with arbitrary ones.
var unspaced = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai,
	unicode.Lao, unicode.Khmer, unicode.Myanmar}

// unaccented maps accented letters of the Latin, Greek and Cyrillic scripts to the plain ones.
var unaccented = sync.OnceValue(func() map[rune]rune {
	table := map[rune]rune{'ł': 'l', 'ø': 'o', 'đ': 'd', 'ı': 'i', 'ς': 'σ'}
	for _, letters := range [][2]rune{{0xc0, 0x24f}, {0x386, 0x3ce}, {0x400, 0x4ff}, {0x1e00, 0x1fff}} {
		for r := letters[0]; r <= letters[1]; r++ {
			base, _ := utf8.DecodeRuneInString(norm.NFD.String(string(r)))
			if base != r && unicode.IsLetter(base) {
				table[r] = base
			}
		}
	}
	return table
})

// apart removes accents, because many servers write without them. It makes a word of each letter of the unspaced
// scripts, so that a phrase is found inside a sentence, and a space of each sign that is no letter: "doesn’t" is
// "doesn t". ASCII stays as it is.
func apart(text string) string {
	if isASCII(text) {
		return text
	}
	var b strings.Builder
	plain := unaccented()
	for _, r := range text {
		if base, accented := plain[r]; accented {
			r = base
		}
		switch {
		case r < utf8.RuneSelf:
			b.WriteByte(byte(r))
		case r >= 0x300 && r <= 0x36f: // a combining accent
		case unicode.In(r, unspaced...):
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		case unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		case strings.ContainsRune("。！？．।", r):
			b.WriteString(". ")
		case strings.ContainsRune("，、；：،؛", r):
			b.WriteString(", ")
		default:
			b.WriteByte(' ')
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// isMark reports whether c is a mark that phrases can name.
func isMark(c byte) bool { return c == evidence.MarkAsked || c == evidence.MarkOurs }

func hasMark(text string) bool {
	return strings.IndexByte(text, evidence.MarkAsked) >= 0 || strings.IndexByte(text, evidence.MarkOurs) >= 0
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
