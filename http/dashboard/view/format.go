package view

import (
	"fmt"
	"net/mail"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// ShortMax bounds a text in a register, in bytes. A guess: most names and addresses are shorter.
const ShortMax = 120

// Short shortens a text of somebody else for a register: the page of the thing itself has the whole one.
func Short(text string) string { return ShortTo(text, ShortMax) }

// ShortTo shortens a text to at most so many bytes, and to twice as many in a page: HTML writes some characters with five.
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

// thinSpace parts the groups of a number: a narrow space that does not break.
const thinSpace = "\u202f"

// Thin writes a whole number with a thin space between groups of three digits.
func Thin[N ~int64](n N) string {
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

// Soon is a moment to come, in UTC, with its day: a bare hour might be of another one.
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
func Share(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
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

// plural is many of a noun.
func plural(noun string) string {
	last := len(noun) - 1
	switch {
	case strings.HasSuffix(noun, "s"), strings.HasSuffix(noun, "x"), strings.HasSuffix(noun, "ch"), strings.HasSuffix(noun, "sh"):
		return noun + "es"
	case last > 0 && noun[last] == 'y' && !strings.ContainsRune("aeiou", rune(noun[last-1])):
		return noun[:last] + "ies"
	}
	return noun + "s"
}

// pluralOf is Plural for templates, which know the type of a number only when they run.
func pluralOf(n any, unit string) string { return Plural(reflect.ValueOf(n).Int(), unit) }
