package web_test

import (
	"html/template"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"rollcall/http/web"
)

func TestAMomentToComeHasItsDay(t *testing.T) {
	now := time.Date(2026, 12, 30, 23, 30, 0, 0, time.UTC)
	for after, want := range map[time.Duration]string{
		10 * time.Minute: "today at 23:40 UTC", time.Hour: "tomorrow at 00:30 UTC", 24 * time.Hour: "tomorrow at 23:30 UTC",
		25 * time.Hour: "on 1 Jan 2027 at 00:30 UTC", -48 * time.Hour: "on 28 Dec at 23:30 UTC",
	} {
		if got := web.Soon(now.Add(after), now); got != want {
			t.Errorf("%s later: %q, want %q", after, got, want)
		}
	}
}

func TestNumbersHaveThinGroups(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1\u202f000", -1234567: "-1\u202f234\u202f567"} {
		if got := web.Thin(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}

func TestATextIsShortInARegister(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "anna@acme.test": "anna@acme.test", "\xff": "\ufffd",
		strings.Repeat("x", 120): strings.Repeat("x", 120), strings.Repeat("x", 121): strings.Repeat("x", 117) + "…",
		strings.Repeat("é", 60): strings.Repeat("é", 60), strings.Repeat("é", 61): strings.Repeat("é", 58) + "…",
		strings.Repeat("&", 48): strings.Repeat("&", 48), strings.Repeat("&", 49): strings.Repeat("&", 47) + "…",
		strings.Repeat("\xff&", 99): strings.Repeat("\ufffd&", 29) + "…",
	} {
		got := web.Short(text)
		if got != want || !utf8.ValidString(got) || len(got) > web.ShortMax ||
			len(template.HTMLEscapeString(got)) > 2*web.ShortMax {
			t.Errorf("%.20q of %d bytes: %q, want %q", text, len(text), got, want)
		}
	}
	for _, r := range "\"&'+<>" {
		if got := web.Short(strings.Repeat(string(r), 1000)); got != strings.Repeat(string(r), 47)+"…" {
			t.Errorf("%q: %q", r, got)
		}
	}
}

func TestAssetsAreCompressedForWhoTakesIt(t *testing.T) {
	assets, err := web.NewAssets()
	if err != nil {
		t.Fatal(err)
	}
	name := assets.URLs()[0][len("/assets/"):]
	for text, want := range map[string]bool{"gzip": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "gzip;q=0.0": false,
		"br": false, "": false, "GZIP": true} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept-Encoding", text)
		if !assets.Serve(w, r, name) || (w.Header().Get("Content-Encoding") == "gzip") != want {
			t.Errorf("Accept-Encoding %q: %v", text, w.Header())
		}
	}
	if assets.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), "none.css") {
		t.Error("an asset that is not there was served")
	}
}

func TestNounsHaveTheirPlural(t *testing.T) {
	for unit, want := range map[string]string{"credit": "2 credits", "address": "2 addresses", "entry": "2 entries",
		"day": "2 days",
		"box": "2 boxes", "batch": "2 batches"} {
		if got := web.Plural(2, unit); got != want {
			t.Errorf("two: %q", got)
		}
		if got := web.Plural(int64(1), unit); got != "1 "+unit {
			t.Errorf("one: %q", got)
		}
	}
	if got := web.Plural(0, "address"); got != "0 addresses" {
		t.Errorf("none: %q", got)
	}
}
