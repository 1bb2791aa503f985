package web

import (
	"cmp"
	"fmt"
	"html/template"
	"net/mail"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// ShortMax bounds a text in a list, in bytes: most names and addresses are shorter.
const ShortMax = 120

// Short shortens a foreign text for a list; the page about the thing itself shows the whole text.
func Short(text string) string { return ShortTo(text, ShortMax) }

// ShortTo shortens a text to at most n bytes, and to at most 2n in HTML, which writes some characters as five.
func ShortTo(text string, most int) string {
	const dots = "…"
	text = strings.ToValidUTF8(text, "\ufffd")
	kept, cost := 0, 0
	for i, r := range text {
		size := utf8.RuneLen(r)
		if strings.ContainsRune(`"&'+<>`, r) {
			cost += len("&amp;")
		} else {
			cost += size
		}
		switch end := i + size; {
		case end > most || cost > 2*most:
			return text[:kept] + dots
		case end+len(dots) <= most && cost+len(dots) <= 2*most:
			kept = end
		}
	}
	return text
}

// thinSpace separates the groups of a number: a narrow no-break space.
const thinSpace = "\u202f"

// Thin writes a whole number with a thin space between groups of three digits.
func Thin[N ~int | ~int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + thinSpace + digits[i:]
	}
	return sign + digits
}

// When writes a time for people, to the minute, in UTC.
func When(t time.Time) string { return t.UTC().Format("2 Jan 2006 15:04") }

// Soon writes a future time in UTC. It adds the day, because an hour alone could be on another day.
func Soon(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	day, at := now.Truncate(24*time.Hour), " at "+t.Format("15:04")+" UTC"
	switch days := t.Truncate(24*time.Hour).Sub(day) / (24 * time.Hour); {
	case days == 0:
		return "today" + at
	case days == 1:
		return "tomorrow" + at
	case t.Year() == now.Year():
		return "on " + t.Format("2 Jan") + at
	}
	return "on " + t.Format("2 Jan 2006") + at
}

// Clock writes a time of today.
func Clock(t time.Time) string { return t.UTC().Format("15:04:05") }

// Stamp writes a time for programs.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Size writes a number of bytes for people, in decimal units.
func Size(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return Plural(n, "byte")
}

// Share returns a part of a whole in percent.
func Share[N ~int | ~int64](part, whole N) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(whole))
}

// Exact writes a time to the second, in UTC.
func Exact(t time.Time) string { return t.UTC().Format("2 Jan 2006 15:04:05") }

// isEmail reports whether a text is an email address and nothing else.
func isEmail(text string) bool {
	a, err := mail.ParseAddress(text)
	return err == nil && a.Address == text
}

// Plural writes a number with its unit, an English noun with a regular plural.
func Plural[N ~int | ~int64](n N, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return Thin(int64(n)) + " " + plural(unit)
}

func plural(noun string) string {
	last := len(noun) - 1
	switch {
	case strings.HasSuffix(noun, "s"), strings.HasSuffix(noun, "x"), strings.HasSuffix(noun, "ch"),
		strings.HasSuffix(noun, "sh"):
		return noun + "es"
	case last > 0 && noun[last] == 'y' && !strings.ContainsRune("aeiou", rune(noun[last-1])):
		return noun[:last] + "ies"
	}
	return noun + "s"
}

// About writes a duration as people say it, rounded to what matters.
func About(d time.Duration) string {
	switch minutes := int64((d + time.Minute/2) / time.Minute); {
	case d < time.Minute:
		return "less than a minute"
	case minutes < 20:
		return "about " + strconv.FormatInt(minutes, 10) + " min"
	case minutes < 90:
		return "about " + strconv.FormatInt((minutes+2)/5*5, 10) + " min"
	case minutes < 36*60:
		return "about " + Plural((minutes+30)/60, "hour")
	default:
		return "about " + Plural((minutes+12*60)/(24*60), "day")
	}
}

// Age writes a number of seconds in a suitable unit.
func Age(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", seconds)
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	default:
		return fmt.Sprintf("%.0f days", d.Hours()/24)
	}
}

// Sentence adds the capital letter and the full stop of a sentence to a text.
func Sentence(text string) string {
	if text == "" {
		return "It was refused."
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// Used says when something was used last.
func Used(at time.Time) string {
	if at.IsZero() {
		return "never used"
	}
	return "last used on " + When(at) + " UTC"
}

// OutcomeWord returns the name of an outcome for people.
func OutcomeWord(outcome string) string { return strings.Replace(outcome, "catch_all", "catch-all", 1) }

// signs are the marks of the outcomes, so that they differ in more than colour.
var signs = map[string]string{"valid": "✓", "invalid": "✕", "catch_all": "≈", "unknown": "?", "error": "!"}

// State is a state for people: its word with a mark, its colour, and what it means in a sentence.
type State struct{ Word, Mark, Class, Sentence string }

// StateOf is a state.
func StateOf(word, mark, class, sentence string) State { return State{word, mark, class, sentence} }

var formats = template.FuncMap{"num": number, "size": Size, "share": func(part, whole any) string {
	return Share(reflect.ValueOf(part).Int(), reflect.ValueOf(whole).Int())
}, "plural": func(n any, unit string) string {
	return Plural(reflect.ValueOf(n).Int(), unit)
}, "email": isEmail, "short": Short, "age": Age, "when": When, "outcome": OutcomeWord,
	"sign": func(outcome string) string { return signs[outcome] }, "any": anyHas,
	"at":    func(t any, none ...string) template.HTML { return timeTag(t, When, none) },
	"exact": func(t any, none ...string) template.HTML { return timeTag(t, Exact, none) },
	"clock": func(t any, none ...string) template.HTML { return timeTag(t, Clock, none) },
	"day": func(t any) template.HTML {
		return timeTag(t, func(t time.Time) string { return t.UTC().Format("2 Jan 2006") }, nil)
	}, "roles": func() string { return RolesText }, "roleList": func() []ledger.Role { return Roles },
	"input": input, "hidden": hidden, "options": options, "copied": copied, "form": form, "send": send,
	"choose": choose, "warn": warn, "off": off, "live": live}

func number(n any) string { return Thin(reflect.Indirect(reflect.ValueOf(n)).Int()) }

// timeTag writes a time for people and programs. For a zero time it writes the text in none, if there is one.
func timeTag(at any, format func(time.Time) string, none []string) template.HTML {
	t, ok := at.(time.Time)
	if !ok {
		t = reflect.ValueOf(at).Convert(reflect.TypeFor[time.Time]()).Interface().(time.Time)
	}
	if t.IsZero() {
		return template.HTML(template.HTMLEscapeString(append(none, "")[0]))
	}
	return template.HTML(`<time datetime="` + Stamp(t) + `">` + format(t) + "</time>")
}

// anyHas reports whether a field or method is not empty in some row.
func anyHas(rows any, field string) bool {
	list := reflect.ValueOf(rows)
	for i := range list.Len() {
		row := reflect.Indirect(list.Index(i))
		value := row.FieldByName(field)
		if value.Kind() == reflect.Slice && value.Len() > 0 || value.Kind() != reflect.Slice && !value.IsZero() {
			return true
		}
	}
	return false
}

// Attempt is one attempt, its reply and the verdict, in words.
type Attempt struct {
	At      time.Time
	Host    string
	Source  string // our address; "": not shown
	TLS     bool
	Rule    string
	Ask     string // the stage of the dialogue; "": none
	Reply   string // the reply, or why there was none
	Replied bool
	Read    string
	Note    string
}

// stages describe stages of the dialogue before an address can be named.
var stages = map[string]string{"connect": "(a connection)", "greeting": "(the greeting)", "hello": "EHLO",
	"tls": "STARTTLS", "mail": "MAIL FROM"}

// placeholders replace addresses, our names and other names in the cleaned text of a reply.
var placeholders = strings.NewReplacer("<^>", "‹the address›", "^", "‹the address›", `\`, "‹our name›", "~", "‹…›")

// attemptOf describes an attempt. asked is the address, or its placeholder.
func attemptOf(s evidence.Attempt, asked string, toOperators bool) Attempt {
	a := Attempt{At: s.At, Host: s.Host, TLS: s.TLS, Rule: s.Rule, Ask: stages[s.Stage.String()],
		Reply: evidence.TroubleSays(s.Trouble.String()), Read: OutcomeWord(s.Outcome.String())}
	if toOperators {
		a.Source, a.Rule = cmp.Or(s.Source, "no known source of ours"), s.RuleName()
	}
	if s.Stage == smtp.StageRcpt || s.Stage == smtp.StageRset {
		a.Ask = "RCPT TO:<" + asked + ">"
	}
	if a.Replied = s.Code != 0; a.Replied {
		words := []string{strconv.Itoa(s.Code), s.Enhanced.String(), placeholders.Replace(s.Text)}
		a.Reply = strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
	}
	if s.Outcome == smtp.Undecided {
		a.Read = "a reason to ask again"
	}
	if s.Reason != smtp.ReasonNone {
		a.Read += " (" + s.Reason.String() + ")"
	}
	switch {
	case s.Void:
		a.Note = "Ignored: the session was no longer reliable."
	case s.Others:
		a.Note = "This wasn't about this address, which waited for the outcome."
	case s.Cause.Why != "":
		a.Note = Sentence(strings.TrimSuffix(s.Cause.Why, "."))
	}
	return a
}

// controlName replaces the address of a control probe.
func controlName(witness bool) string {
	if witness {
		return "another address of the domain"
	}
	return "a made-up name"
}

// behaviourText describes what control probes showed about a receiver, or returns "" if nothing is known.
func behaviourText(accepts, known bool) string {
	switch {
	case !known:
		return ""
	case accepts:
		return "The receiver accepts made-up names, so a yes doesn't show that the mailbox exists."
	}
	return "The receiver refuses made-up names, so its answers about real addresses can be trusted."
}

// Talk is the evidence for an outcome. Attempts and Controls are in order.
type Talk struct {
	Email                    string
	Outcome, Token, Sentence string
	Flags                    []string // facts about the address itself, in sentences
	Kept                     bool     // there is evidence
	NoRoute                  string
	Attempts, Controls       []Attempt
	Omitted                  int
	Behaviour                string
	GaveUp                   bool
}

// TalkOf describes the evidence for an outcome; c is nil without evidence. For operators it also names the source that
// asked, and the version of the rule.
func TalkOf(r ledger.Result, c *evidence.Case, toOperators bool) *Talk {
	t := &Talk{Email: r.Email, Outcome: r.Outcome.String(), Token: r.Reason.String(), Sentence: SentenceOf(r.Reason)}
	if c == nil {
		return t
	}
	t.Kept, t.Omitted, t.GaveUp = true, c.Omitted, c.GaveUp
	for _, a := range c.Attempts {
		t.Attempts = append(t.Attempts, attemptOf(a, r.Email, toOperators))
	}
	for _, a := range c.Behaviour.Controls {
		t.Controls = append(t.Controls, attemptOf(a, controlName(a.Witness), toOperators))
	}
	switch {
	case c.NoRoute == smtp.ReasonNone:
	case toOperators:
		t.NoRoute = "DNS gave no route (" + c.NoRoute.String() + ")."
	default:
		t.NoRoute = SentenceOf(c.NoRoute)
	}
	t.Behaviour = behaviourText(c.Behaviour.CatchAll())
	return t
}

// SentenceOf returns the sentence of a reason, without its word.
func SentenceOf(r smtp.Reason) string {
	_, sentence, _ := strings.Cut(r.Message(), " ")
	return sentence
}
