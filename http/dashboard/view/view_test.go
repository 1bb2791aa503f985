package view_test

import (
	"net/http/httptest"
	"testing"

	"rollcall/http/dashboard/view"
)

func TestNumbersHaveThinGroups(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1\u202f000", -1234567: "-1\u202f234\u202f567"} {
		if got := view.Thin(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}

func TestAssetsAreCompressedForWhoTakesIt(t *testing.T) {
	assets, err := view.NewAssets()
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
	for unit, want := range map[string]string{"credit": "2 credits", "address": "2 addresses", "entry": "2 entries", "day": "2 days",
		"box": "2 boxes", "batch": "2 batches"} {
		if got := view.Plural(2, unit); got != want {
			t.Errorf("two: %q", got)
		}
		if got := view.Plural(int64(1), unit); got != "1 "+unit {
			t.Errorf("one: %q", got)
		}
	}
	if got := view.Plural(0, "address"); got != "0 addresses" {
		t.Errorf("none: %q", got)
	}
}
