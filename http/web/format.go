package web

import (
	"fmt"
	"html/template"
	"net/mail"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"rollcall/ledger"
)

// ShortMax bounds a text in a list, in bytes: most names and addresses are shorter.
const ShortMax = 120

// Short shortens a foreign text for a list; the page about the thing itself shows the whole text.
func Short(text string) string { return ShortTo(text, ShortMax) }

// ShortTo shortens a text to at most n bytes, and to at most 2n in HTML, which writes some characters with five.
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

// When is a moment for people, to the minute, in UTC.
func When(t time.Time) string { return t.UTC().Format("2 Jan 2006 15:04") }

// Soon is a future time, in UTC, with its day, because a bare hour could be on another day.
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

// Clock is a moment of today.
func Clock(t time.Time) string { return t.UTC().Format("15:04:05") }

// Stamp is a moment for programs.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Size is a number of bytes for people, in decimal units.
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

// Share is a part of a whole in percent.
func Share[N ~int | ~int64](part, whole N) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(whole))
}

// Exact is a moment to the second, in UTC.
func Exact(t time.Time) string { return t.UTC().Format("2 Jan 2006 15:04:05") }

// isEmail reports whether a text is an email address and nothing else.
func isEmail(text string) bool {
	a, err := mail.ParseAddress(text)
	return err == nil && a.Address == text
}

// Plural is a number with its unit, which is an English noun with a regular plural.
func Plural[N ~int | ~int64](n N, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return Thin(int64(n)) + " " + plural(unit)
}

// plural is the plural of a noun.
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

// About is a span of time as people say it: rounded to what matters.
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

// Age is a number of seconds, in the unit that suits it.
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

// Sentence gives a text the capital letter and the full stop of a sentence.
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

// OutcomeWord is an outcome for people.
func OutcomeWord(outcome string) string { return strings.Replace(outcome, "catch_all", "catch-all", 1) }

// signs are the marks of the outcomes, so that none differs only by its colour.
var signs = map[string]string{"valid": "✓", "invalid": "✕", "catch_all": "≈", "unknown": "?", "error": "!"}

// State is a state for people: its word with a mark, its colour, and what it means in a sentence.
type State struct{ Word, Mark, Class, Sentence string }

// StateOf is a state.
func StateOf(word, mark, class, sentence string) State { return State{word, mark, class, sentence} }

// formats are the functions of all templates.
var formats = template.FuncMap{"num": number, "size": Size, "share": func(part, whole any) string {
	return Share(reflect.ValueOf(part).Int(), reflect.ValueOf(whole).Int())
}, "plural": func(n any, unit string) string {
	return Plural(reflect.ValueOf(n).Int(), unit)
}, "email": isEmail, "short": Short, "age": Age, "when": When, "stamp": Stamp, "outcome": OutcomeWord,
	"sign": func(outcome string) string { return signs[outcome] }, "any": anyHas,
	"at":    func(t any, none ...string) template.HTML { return timeTag(t, When, none) },
	"exact": func(t any, none ...string) template.HTML { return timeTag(t, Exact, none) },
	"clock": func(t any, none ...string) template.HTML { return timeTag(t, Clock, none) },
	"day": func(t any) template.HTML {
		return timeTag(t, func(t time.Time) string { return t.UTC().Format("2 Jan 2006") }, nil)
	},
	"roles": func() string { return RolesText }, "roleList": func() []ledger.Role { return Roles },
	"input": input, "hidden": hidden, "options": options, "copied": copied, "form": form, "send": send,
	"choose": choose, "warn": warn, "off": off, "live": live}

// number writes any whole number.
func number(n any) string { return Thin(reflect.Indirect(reflect.ValueOf(n)).Int()) }

// timeTag is a time for people and programs; for a zero time nothing, or another word.
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

// anyHas reports whether a field or a method of some row is not empty.
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
