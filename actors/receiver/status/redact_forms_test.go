package status

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollcall/config/effort"
)

// TestNoFormIsOverlooked: where Redact does not look for the forms of a local part, there are none.
func TestNoFormIsOverlooked(t *testing.T) {
	parts := []string{"a", "an", "anna", "b", "bo", "1", ".", "_", "-", "+", "=", "%", "'", " ", "a.b", "a%2eb", "x"}
	held := 0
	effort.Check(t, func(t *rapid.T) {
		local := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 5).Draw(t, "local"), "")
		said := strings.Join(rapid.SliceOfN(rapid.SampledFrom(append(formsOf(local), parts...)), 1, 5).Draw(t, "text"), "")
		want := said
		for _, form := range formsOf(local) {
			want = without(want, form)
		}
		if want != said {
			held++
		}
		effort.MustBe(t, Redact(said, local), want, said, "without", local)
	})
	effort.Not(t, held, 0, "no text held a local part")
}
