package throttle

import "testing"

// TestSoftwareOf: a greeting names its software, and a stranger or a gateway keeps the budget of an
// hour.
func TestSoftwareOf(t *testing.T) {
	for greeting, want := range map[string]string{
		"mx.example ESMTP Postfix (Debian/GNU)":                             "Postfix",
		"mx.example ESMTP Exim 4.96 Mon, 02 Nov 2026 10:00:00 +0000":        "Exim",
		"EX1.example Microsoft ESMTP MAIL Service ready at Mon, 2 Nov 2026": "Exchange",
		"mx.example ESMTP": "", "esa1.example ESMTP": "", "": "",
	} {
		s, known := SoftwareOf(greeting)
		if s.Name != want || known != (want != "") {
			t.Errorf("%q: %q", greeting, s.Name)
		}
		a := DefaultLimits()
		if b := s.Apply(a); known && (b.RefusedPerHour != CountMax || b.RefusedPerSession > a.RefusedPerSession) {
			t.Errorf("%s: %+v", want, b)
		}
	}
}
