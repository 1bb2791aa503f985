package term

import "os"

// The colours that words have at a terminal, as SGR codes of ECMA-48.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
)

// colours are those of words that people look for. Each is a whole cell of a table.
var colours = map[string]string{
	"valid": green, "completed": green, "ok": green, "serving": green, "yes": green,
	"catch_all": yellow, "unknown": yellow, "waiting": yellow, "warn": yellow, "completed_with_errors": yellow,
	"cancelled": yellow, "suspect": yellow, "draining": yellow, "unseen": yellow, "unlinked": yellow,
	"invalid": red, "error": red, "failed": red, "FAILED": red, "fail": red, "lost": red, "unfit": red,
}

// ShowsColours reports whether a stream is a terminal that may be coloured: NO_COLOR is empty, and TERM isn't dumb.
func ShowsColours(stream any) bool {
	return IsTerminal(stream) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Coloured puts a word into its colour, if it has one.
func Coloured(word string) string {
	if code := colours[word]; code != "" {
		return "\x1b[" + code + "m" + word + "\x1b[0m"
	}
	return word
}
