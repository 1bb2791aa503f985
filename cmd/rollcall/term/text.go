package term

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"golang.org/x/term"
)

// Columns is the least width of a terminal.
const Columns = 80

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := FileOf(stream)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Confirm asks a person. For any answer but yes it returns the error otherwise.
func Confirm(in io.Reader, out io.Writer, question string, otherwise error) error {
	fmt.Fprint(out, question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return otherwise
}

// namesMost is how many names a note lists, as many as a person reads.
const namesMost = 8

// Some writes a list of names, shortened if it is long.
func Some(names []string) string {
	if more := len(names) - namesMost; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namesMost], ", "), more)
	}
	return strings.Join(names, ", ")
}

// Seconds converts a number of seconds.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Span writes a length of time with one unit: 45s, 12m, 5h, 12d.
func Span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(max(0, d).Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// whole is a count of anything.
type whole interface{ ~int | ~int64 }

// Short writes a count in nine characters at most.
func Short[N whole](n N) string {
	if n < 10_000_000 {
		return Grouped(n)
	}
	return Grouped(n/1_000_000) + "M"
}

// Printable replaces characters that could move the cursor, because names come from other machines.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// Clipped shortens a text to at most n characters, at its end.
func Clipped(text string, n int) string {
	runes := []rune(Printable(text))
	if len(runes) <= n {
		return string(runes)
	}
	return string(runes[:n-1]) + "…"
}

// Middle shortens a text to at most n characters by leaving out its middle, because versions differ at both ends.
func Middle(text string, n int) string {
	runes := []rune(Printable(text))
	if len(runes) <= n {
		return string(runes)
	}
	tail := (n - 1) / 2
	return string(runes[:n-1-tail]) + "…" + string(runes[len(runes)-tail:])
}

// NameWidth is the column in which the values of fields begin.
const NameWidth = 14

// Stamp writes a time in the form of the results file.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Rough writes a duration with about two digits.
func Rough(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// Dash returns the text, or a dash if it is empty.
func Dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Counted writes a number of things, as "1 row", "1,234 rows" and "2 addresses".
func Counted[N whole](n N, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "s"):
		thing += "e"
	}
	return Grouped(n) + " " + thing + "s"
}

// Grouped writes a number in groups of three digits, as 1,234,567.
func Grouped[N whole](n N) string {
	if n < 0 {
		return "-" + Grouped(-n)
	}
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Colours of words, as SGR codes of ECMA-48.
const (
	Bold   = "1"
	Red    = "31"
	Green  = "32"
	Yellow = "33"
)

// colours are the colours of words that people look for.
var colours = func() map[string]string {
	all := map[string]string{}
	for code, words := range map[string]string{
		Green: "valid completed ok serving yes asking done",
		Yellow: "catch_all unknown waiting warn completed_with_errors cancelled suspect draining unseen unlinked paused " +
			"penalty budget suspended closing",
		Red: "invalid error failed FAILED fail lost ineligible NO no blocked disabled",
	} {
		for word := range strings.FieldsSeq(words) {
			all[word] = code
		}
	}
	return all
}()

// hasStates reports whether a column or field of this name holds states. Elsewhere words like "failed" are only
// names.
func hasStates(name string) bool {
	switch strings.ToLower(name) {
	case "state", "status", "outcome", "result", "holds":
		return true
	}
	return false
}

// ShowsColours reports whether a stream is a terminal that may be coloured: NO_COLOR is empty, and TERM isn't dumb.
func ShowsColours(stream any) bool {
	return IsTerminal(stream) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Coloured colours a text with the colour of its first word, if the word has one.
func Coloured(text string) string {
	word := text[:len(text)-len(strings.TrimLeft(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"))]
	if code := colours[word]; code != "" {
		return inColour(code, word) + text[len(word):]
	}
	return text
}

func inColour(code, text string) string { return "\x1b[" + code + "m" + text + "\x1b[0m" }

// ErrUsage is in every error about wrong usage of a command.
var ErrUsage = errors.New("wrong usage")

// UsageError is the message about wrong usage.
type UsageError string

func (e UsageError) Error() string { return string(e) }

// Is makes errors.Is(err, ErrUsage) true.
func (e UsageError) Is(target error) bool { return target == ErrUsage }

// Pace is the speed of some work since this run's first look. The work done before doesn't count: an earlier run may
// have done it.
type Pace struct {
	begun time.Time // of the first look
	at    int64     // how much was done at the first look
}

// paceLeast is how long a pace is measured before it is shown.
const paceLeast = time.Second

// Look notes how much is done at a time. It keeps the first look, and starts again if less is done than then.
func (p *Pace) Look(now time.Time, done int64) {
	if p.begun.IsZero() || done < p.at {
		p.begun, p.at = now, done
	}
}

// PerSecond returns how much is done in a second, or 0 if that is not known yet.
func (p *Pace) PerSecond(now time.Time, done int64) float64 {
	elapsed := now.Sub(p.begun)
	if p.begun.IsZero() || elapsed < paceLeast || done <= p.at {
		return 0
	}
	return float64(done-p.at) / elapsed.Seconds()
}

// LeftText returns how long the remaining work takes at this pace, as ", about 3 minutes left", or "" if unknown.
func LeftText(perSecond float64, more int64) string {
	if perSecond <= 0 || more <= 0 {
		return ""
	}
	seconds := float64(more) / perSecond
	if seconds < 1 || seconds > leftMost.Seconds() {
		return ""
	}
	return fmt.Sprintf(", about %s left", Roughly(time.Duration(seconds*float64(time.Second))))
}

// Roughly writes a length of time as people say it: "40 seconds", "3 minutes", "5 hours", "3 days".
func Roughly(d time.Duration) string {
	in := func(unit time.Duration) int64 { return int64((d + unit/2) / unit) }
	switch {
	case d < 10*time.Second:
		return Counted(max(in(time.Second), 1), "second")
	case d < 90*time.Second:
		return Counted(10*in(10*time.Second), "second")
	case d < 90*time.Minute:
		return Counted(in(time.Minute), "minute")
	case d < 36*time.Hour:
		return Counted(in(time.Hour), "hour")
	}
	return Counted(in(24*time.Hour), "day")
}

// leftMost is the longest time left that is shown: a year. A longer estimate means nothing.
const leftMost = 365 * 24 * time.Hour

// Sleep waits for d or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Repeat asks and shows the answer at an interval until ctx ends, which is not an error. Only a failure of the first
// question ends it, because later a node may become unreachable and come back.
func Repeat[T any](ctx context.Context, every time.Duration, ask func(context.Context) (T, error),
	show func(found T, failed error) error) error {
	next := time.Now()
	for first := true; ; first = false {
		found, err := ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && first {
			return err
		}
		if err := show(found, err); err != nil {
			return err
		}
		next = next.Add(every)
		if Sleep(ctx, max(time.Until(next), every/4)) != nil {
			return nil
		}
		if late := time.Now(); next.Before(late.Add(-every)) {
			next = late
		}
	}
}
