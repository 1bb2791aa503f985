package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var updateMessy = flag.Bool("update-messy", false, "write what is said of the samples into testdata/messy.json")

// sample is a file of testdata/messy.json and what is said of it. The pages' own checker may be held to the same.
type sample struct {
	Name    string `json:"name"`
	Text    string `json:"text,omitempty"`
	Base64  []byte `json:"base64,omitempty"`  // instead of text: what is no text, or not in UTF-8
	Refused string `json:"refused,omitempty"` // what the service says of the file
	Defects []said `json:"defects,omitempty"` // all of them, and notes
}

type said struct {
	Row     int64    `json:"row,omitempty"`
	Kind    Kind     `json:"kind"`
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Means   []string `json:"means,omitempty"`
}

func (s sample) file() []byte {
	if s.Text != "" {
		return []byte(s.Text)
	}
	return s.Base64
}

// TestMessyFiles holds what is said of the files that people have.
func TestMessyFiles(t *testing.T) {
	t.Parallel()
	name := filepath.Join("testdata", "messy.json")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var samples []sample
	if err := json.Unmarshal(text, &samples); err != nil {
		t.Fatal(err)
	}
	seen := map[Kind]bool{}
	for i := range samples {
		want := samples[i]
		got := sample{Name: want.Name, Text: want.Text, Base64: want.Base64}
		if _, err := Inspect(bytes.NewReader(want.file()), Limits{RowsMax: 100}, nil, func(d *Defect) bool {
			got.Defects = append(got.Defects, said{d.Row, d.Kind, d.Code, d.Message, d.Means})
			seen[d.Kind] = true
			return true
		}); err != nil {
			t.Fatal(err)
		}
		_, err := Read(bytes.NewReader(want.file()), Limits{RowsMax: 100})
		if d := (*Defect)(nil); errors.As(err, &d) {
			got.Refused = d.Message
		}
		if !*updateMessy && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", want.Name, got, want)
		}
		samples[i] = got
	}
	for kind := range kinds {
		if !seen[kind] && kind != KindTooMany {
			t.Errorf("no sample is of the kind %s", kind)
		}
	}
	if *updateMessy {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		if err := errors.Join(e.Encode(samples), os.WriteFile(name, b.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// What Check says of one text is what Inspect says of it as a row.
func TestCheckIsInspectOfOneRow(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"anna@a.test", "", " ", "Anna <anna@a.test>", "anna@a.test ", "a@b@c", "a;b",
		strings.Repeat("x", FieldBytesMax), strings.Repeat("a", 65) + "@a.test"} {
		var want *Defect
		if _, err := Inspect(strings.NewReader("email\n"+text+"\n"), Limits{RowsMax: 9}, nil, func(d *Defect) bool {
			want = d
			return false
		}); err != nil {
			t.Fatal(err)
		}
		if want != nil && want.Kind == KindNoAddress {
			want = nil
		}
		if got := Check(text, 2); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
	}
}

// Rows behind the first with a defect are counted for the message, up to a bound.
func TestMoreRowsAreCounted(t *testing.T) {
	t.Parallel()
	for bad, want := range map[int]string{1: "upload the file again.", 2: " One more row has a defect.",
		3: " 2 more rows have defects.", moreMax + 5: " More than 1,000 more rows have defects."} {
		_, err := Read(strings.NewReader("email\n"+strings.Repeat("a@b.test\nnothing\n", bad)), Limits{RowsMax: 9999})
		d := (*Defect)(nil)
		if !errors.As(err, &d) || !strings.HasSuffix(d.Message, want) || d.Row != 3 {
			t.Errorf("%d bad rows: got %+v, want %q", bad, d, want)
		}
	}
}
