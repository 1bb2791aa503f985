package term

import (
	"os"
	"strings"
)

// How words look at a terminal, as SGR codes of ECMA-48.
const (
	Bold   = "1"
	Red    = "31"
	Green  = "32"
	Yellow = "33"
)

// colours are those of words that people look for.
var colours = func() map[string]string {
	all := map[string]string{}
	for code, words := range map[string]string{
		Green: "valid completed ok serving yes asking done",
		Yellow: "catch_all unknown waiting warn completed_with_errors cancelled suspect draining unseen unlinked paused " +
			"penalty budget resting closing",
		Red: "invalid error failed FAILED fail lost unfit NO no blocked disabled",
	} {
		for word := range strings.FieldsSeq(words) {
			all[word] = code
		}
	}
	return all
}()

// hasStates reports whether a column or field of this name holds states; a file may be called failed.
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

// Coloured puts the first word of a text into its colour, if it has one.
func Coloured(text string) string {
	word := text[:len(text)-len(strings.TrimLeft(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"))]
	if code := colours[word]; code != "" {
		return inColour(code, word) + text[len(word):]
	}
	return text
}

func inColour(code, text string) string { return "\x1b[" + code + "m" + text + "\x1b[0m" }
