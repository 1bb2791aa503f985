package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
)

func TestMemoryKeepsTheIdentityUntilForgotten(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "not", "there", "yet")
	sum := sha256.Sum256([]byte("a"))
	first, err := newMemory(folder, sum).identity()
	if err != nil {
		t.Fatal(err)
	}
	again, err := newMemory(folder, sum).identity()
	if err != nil || again != first {
		t.Errorf("again: got %v and %v, want %v", again, err, first)
	}
	if other, err := newMemory(folder, sha256.Sum256([]byte("b"))).identity(); err != nil || other == first {
		t.Errorf("other bytes: got %v and %v, want another identity", other, err)
	}
	if err := newMemory(folder, sum).forget(); err != nil {
		t.Fatal(err)
	}
	if fresh, err := newMemory(folder, sum).identity(); err != nil || fresh == first {
		t.Errorf("forgotten: got %v and %v, want another identity", fresh, err)
	}
}

// service answers as the API does for a verification that is done.
func service(t *testing.T, status, results string) *client.API {
	customer := newTestCustomer(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/results"):
			fmt.Fprint(w, results)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"id":"v1","status":"preparing"}`)
		default:
			fmt.Fprintf(w, `{"id":"v1","status":%q,"created_at":"2026-11-20T10:00:00.000Z",`+
				`"completed_at":"2026-11-20T10:00:05.000Z","progress":{"total":4,"completed":3,"errors":0,"cancelled":1},`+
				`"input":{"rows":5,"duplicates":1},"issue":{"code":"csv_blank_record","message":"Delete it.","row":3}}`, status)
		}
	})
	return customer
}

const someResults = "email,result,message,checked_at\r\n" +
	"a@a.test,valid,mailbox_exists It does.,2026-11-20T10:00:01.000Z\r\n" +
	"\"b,b\"@a.test,unknown,timeout It did not.,2026-11-20T10:00:02.000Z\r\n" +
	"c@a.test,catch_all,accept_all It takes all.,2026-11-20T10:00:03.000Z\r\n"

// newTestRun makes a run of verify against a service.
func newTestRun(t *testing.T, client *client.API, f verifyFlags) (r *verifyRun, stdout, stderr *bytes.Buffer) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "list.csv")
	if err := os.WriteFile(name, []byte("a@a.test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := openInput(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	return &verifyRun{
		flags: f, input: in, view: newProgressView(stderr), stdout: stdout, client: client,
		memory: newMemory(t.TempDir(), in.sum), poll: time.Millisecond,
	}, stdout, stderr
}

func TestResultsGoToStandardOutputAndTheTableBesideIt(t *testing.T) {
	quoted := strings.Replace(someResults, `"b,b"@a.test`, `"""b,b""@a.test"`, 1)
	r, stdout, stderr := newTestRun(t, service(t, "cancelled", quoted), verifyFlags{})
	err := r.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "cancelled") {
		t.Errorf("got %v, want an error that says cancelled", err)
	}
	if stdout.String() != quoted {
		t.Errorf("standard output: got %q, want the service's bytes", stdout)
	}
	for _, want := range []string{
		"valid      1          25.0 %   1\n", "unknown    1          25.0 %   0\n",
		"cancelled  1          25.0 %   0\n", "total      4          100.0 %  2\n",
		"cancelled in 5s: 5 rows, 1 duplicate; 2 credits charged, 2 given back.\n",
	} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("standard error: %q is missing in\n%s", want, stderr)
		}
	}
}

func TestJSONIsOneObject(t *testing.T) {
	for _, out := range []string{"", filepath.Join(t.TempDir(), "r.csv")} {
		quoted := strings.Replace(someResults, `"b,b"@a.test`, `"""b,b""@a.test"`, 1)
		r, stdout, _ := newTestRun(t, service(t, "completed", quoted), verifyFlags{json: true, out: term.OutFile{Name: out}})
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got struct {
			verifySummary
			Results []resultView `json:"results"`
		}
		if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
			t.Fatalf("--out %q: %v in %s", out, err, stdout)
		}
		if got.ID != "v1" || got.Total != 4 || got.Outcomes["valid"] != 1 || got.Outcomes["error"] != 0 ||
			got.Credits.Charged != 2 {
			t.Errorf("--out %q: got %+v", out, got)
		}
		if out == "" && (len(got.Results) != 3 || got.Results[1].Email != `"b,b"@a.test`) {
			t.Errorf("got results %+v", got.Results)
		}
		if out == "" {
			continue
		}
		if text, err := os.ReadFile(out); err != nil || string(text) != quoted {
			t.Errorf("%s: got %q and %v", out, text, err)
		}
	}
}

// TestResultsForASpreadsheet: cells that would be formulas are text, and the file is its
// owner's; without the flag the bytes are the service's.
func TestResultsForASpreadsheet(t *testing.T) {
	const head, tail = "email,result,message,checked_at\r\n", ",valid,mailbox_exists It does.,2026-11-20T10:00:01.000Z\r\n"
	results, want := head, "email,result,message,checked_at\n"
	for _, c := range [][2]string{{"a@a.test", "a@a.test"}, {"=cmd@a.test", "'=cmd@a.test"}, {"+a@a.test", "'+a@a.test"},
		{"-a@a.test", "'-a@a.test"}, {"@a.test", "'@a.test"}, {"\"\ta@a.test\"", "'\ta@a.test"}, {"a=b@a.test", "a=b@a.test"},
		{`"""=b,b""@a.test"`, `"""=b,b""@a.test"`}} {
		results += c[0] + tail
		want += c[1] + strings.ReplaceAll(tail, "\r", "")
	}
	for _, spreadsheet := range []bool{false, true} {
		out := filepath.Join(t.TempDir(), "r.csv")
		for _, file := range []string{"", out} {
			r, stdout, _ := newTestRun(t, service(t, "completed", results), verifyFlags{spreadsheet: spreadsheet,
				out: term.OutFile{Name: file, Force: true}})
			if err := r.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := stdout.String()
			if file != "" {
				text, err := os.ReadFile(out)
				info, statErr := os.Stat(out)
				if err != nil || statErr != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("the file: %v, %v, %v", info, err, statErr)
				}
				got = string(text)
			}
			if wanted := map[bool]string{false: results, true: want}[spreadsheet]; got != wanted {
				t.Errorf("--spreadsheet %v --out %q: got\n%q, want\n%q", spreadsheet, file, got, wanted)
			}
		}
	}
	if asText("\rx") != "'\rx" || asText("") != "" || asText("'=") != "'=" {
		t.Error("a cell with CR, an empty one, or one that is quoted already")
	}
}

func TestARefusedFileIsToldWithItsRowAndForgotten(t *testing.T) {
	r, stdout, _ := newTestRun(t, service(t, "failed", "email,result,message,checked_at\n"), verifyFlags{})
	err := r.run(t.Context())
	if want := r.input.name + ": row 3: Delete it. (csv_blank_record)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := os.Stat(r.memory.file); err == nil || stdout.Len() != 0 {
		t.Errorf("the identity is still kept, or there is output %q", stdout)
	}
}

func TestACutDownloadLeavesNoFileAndKeepsTheIdentity(t *testing.T) {
	out := filepath.Join(t.TempDir(), "r.csv")
	r, _, _ := newTestRun(t, service(t, "completed", someResults[:60]), verifyFlags{out: term.OutFile{Name: out}})
	if err := r.run(t.Context()); err == nil || !strings.Contains(client.Advised(err), "run the command again") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a cut file was left as the results")
	}
	if _, err := os.Stat(r.memory.file); err != nil {
		t.Errorf("the identity is gone: %v", err)
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567",
		-1000: "-1,000"} {
		if got := term.Grouped(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

// newTestCustomer makes a client of a handler.
func newTestCustomer(t *testing.T, handler http.HandlerFunc) *client.API {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return client.NewAPI(server.URL, "rc_test_key", func(string) {})
}
