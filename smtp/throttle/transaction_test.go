package throttle

import (
	"strings"
	"testing"

	"rollcall/config/effort"
)

// TestTogether: what may go together after some answers, with 20 told. A "+" is a plain answer, "-" another
// one, and "s" says that 3 were taken and no more.
func TestTogether(t *testing.T) {
	for answers, want := range map[string]int{
		"":                            1,
		"+":                           2,
		"++":                          2,
		"+++":                         4,
		strings.Repeat("+", 7):        8,
		strings.Repeat("+", 31):       20,
		strings.Repeat("+", 1000):     20,
		"-":                           1,
		"+++-":                        2,
		"+++-+":                       2,
		"+++-++":                      4,
		"++-+":                        2,
		"+-+-+-+":                     2,
		strings.Repeat("+", 31) + "-": 10,
		"s":                           1,
		"+++++++s":                    3,
		"+++++++s+++":                 6,
	} {
		var s Together
		for _, a := range answers {
			switch a {
			case '+':
				s.OnPlain(20)
			case '-':
				s.OnOther()
			default:
				s.OnSplit(3)
			}
		}
		effort.Is(t, s.Now(20), want, answers)
		if s.Now(1) != 1 || s.Now(2) > 2 {
			t.Errorf("%q: more than is told", answers)
		}
	}
}
