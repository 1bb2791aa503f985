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
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/http/api"
	"rollcall/smtp/smtplab"
)

func TestMemoryKeepsTheIdentityUntilForgotten(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "not", "there", "yet")
	sum := sha256.Sum256([]byte("a"))
	first := effort.Must(newMemory(folder, sum).identity())(t)
	again := effort.Must(newMemory(folder, sum).identity())(t)
	effort.Is(t, again, first, "again")
	effort.Not(t, effort.Must(newMemory(folder, sha256.Sum256([]byte("b"))).identity())(t), first, "other bytes: and")
	effort.OK(t, newMemory(folder, sum).forget())
	effort.Not(t, effort.Must(newMemory(folder, sum).identity())(t), first, "forgotten: and")
}

// service answers as the API does for a finished verification.
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
	effort.OK(t, os.WriteFile(name, []byte("a@a.test\n"), 0o600))
	in := effort.Must(openInput(name))(t)
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
	effort.ErrHas(t, r.run(t.Context()), "cancelled")
	effort.Is(t, stdout.String(), quoted, "standard output", stdout, "the service's bytes")
	holds(t, stderr.String(), "valid      1          25.0 %   1\n", "unknown    1          25.0 %   0\n",
		"cancelled  1          25.0 %   0\n", "total      4          100.0 %  2\n",
		"cancelled in 5s: 5 rows, 1 duplicate; 2 credits charged, 2 given back.\n")
}

func TestJSONIsOneObject(t *testing.T) {
	for _, out := range []string{"", filepath.Join(t.TempDir(), "r.csv")} {
		quoted := strings.Replace(someResults, `"b,b"@a.test`, `"""b,b""@a.test"`, 1)
		r, stdout, _ := newTestRun(t, service(t, "completed", quoted), verifyFlags{json: true, out: term.OutFile{Name: out}})
		effort.OK(t, r.run(t.Context()))
		var got struct {
			verifySummary
			Results []resultView `json:"results"`
		}
		effort.OK(t, json.Unmarshal(stdout.Bytes(), &got), "--out", out, stdout)
		effort.ErrorIf(t, got.ID != "v1" || got.Total != 4 || got.Outcomes["valid"] != 1 ||
			got.Outcomes["error"] != 0 || got.Credits.Charged != 2, "--out %q: got %+v", out, got)
		effort.ErrorIf(t, out == "" && (len(got.Results) != 3 || got.Results[1].Email != `"b,b"@a.test`),
			"got results %+v", got.Results)
		if out == "" {
			continue
		}
		effort.Is(t, string(effort.Must(os.ReadFile(out))(t)), quoted, out)
	}
}

// TestResultsForASpreadsheet: cells that a spreadsheet would run as formulas become text, and only the owner can read
// the file. Without the flag the bytes are the service's.
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
			effort.OK(t, r.run(t.Context()))
			got := stdout.String()
			if file != "" {
				text, err := os.ReadFile(out)
				info, statErr := os.Stat(out)
				effort.ErrorIf(t, err != nil || statErr != nil || info.Mode().Perm() != 0o600,
					"the file: %v, %v, %v", info, err, statErr)
				got = string(text)
			}
			if wanted := map[bool]string{false: results, true: want}[spreadsheet]; got != wanted {
				t.Errorf("--spreadsheet %v --out %q: got\n%q, want\n%q", spreadsheet, file, got, wanted)
			}
		}
	}
	effort.ErrorIf(t, asText("\rx") != "'\rx" || asText("") != "" || asText("'=") != "'=",
		"a cell with CR, an empty one, or one that is quoted already")
}

func TestARefusedFileIsToldWithItsRowAndForgotten(t *testing.T) {
	r, stdout, _ := newTestRun(t, service(t, "failed", "email,result,message,checked_at\n"), verifyFlags{})
	err := r.run(t.Context())
	want := r.input.name + ": row 3: Delete it. (csv_blank_record)"
	effort.ErrorIf(t, err == nil || err.Error() != want, "got %v, want %s", err, want)
	if _, err := os.Stat(r.memory.file); err == nil || stdout.Len() != 0 {
		t.Errorf("the identity is still kept, or there is output %q", stdout)
	}
}

func TestACutDownloadLeavesNoFileAndKeepsTheIdentity(t *testing.T) {
	out := filepath.Join(t.TempDir(), "r.csv")
	r, _, _ := newTestRun(t, service(t, "completed", someResults[:60]), verifyFlags{out: term.OutFile{Name: out}})
	err := r.run(t.Context())
	effort.ErrorIf(t, err == nil || !strings.Contains(client.Advised(err), "run the command again"), "got %v", err)
	_, err = os.Stat(out)
	effort.ErrorIf(t, err == nil, "a cut file was left as the results")
	effort.Denied(os.Stat(r.memory.file))(t, nil, "the identity is gone")
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		effort.Is(t, term.Grouped(n), want, n)
	}
}

func newTestCustomer(t *testing.T, handler http.HandlerFunc) *client.API {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return client.NewAPI(server.URL, "rc_test_key", func(string) {})
}

// TestPublicDomains plays the public samples about DNS as whole domains, for a node that asks over sockets. P070: an
// MX with only a private address. P071: an MX of localhost. P073: a good A record beside an AAAA record that gets
// SERVFAIL, the wrong code, or no answer.
func TestPublicDomains(t *testing.T) {
	t.Parallel()
	lab := startLab(t, smtplab.Defaults())
	f := soundFront(t, lab.DNSAddr())
	f.set(t, "p070.test.", dns.TypeMX, "10 mx.p070.test.")
	f.set(t, "mx.p070.test.", dns.TypeA, "10.1.2.3")
	f.set(t, "mx.p070.test.", dns.TypeAAAA)
	f.set(t, "p071.test.", dns.TypeMX, "0 localhost.")
	f.set(t, "localhost.", dns.TypeA, "127.0.0.1")
	f.set(t, "localhost.", dns.TypeAAAA, "::1")
	want := map[string]string{"anna@p070.test": "invalid no_mail_service", "anna@p071.test": "invalid no_mail_service"}
	file := "email\nanna@p070.test\nanna@p071.test\n"
	for i, code := range []int{dns.RcodeServerFailure, dns.RcodeNameError, silent} {
		domain := fmt.Sprintf("p073%d-clean.test", i)
		asked, err := dns.Exchange(new(dns.Msg).SetQuestion(domain+".", dns.TypeMX), lab.DNSAddr())
		effort.FatalIf(t, err != nil || len(asked.Answer) == 0, "%s: %v, %v", domain, asked, err)
		f.codes[asked.Answer[0].(*dns.MX).Mx+"AAAA"] = code
		want["anna@"+domain], want["nobody@"+domain] = "valid mailbox_exists", "invalid mailbox_not_found"
		file += "anna@" + domain + "\nnobody@" + domain + "\n"
	}
	n, _ := checkedNode(t, lab, f, func(c *config.Config) {
		c.DNS.Timeout = config.Duration{Duration: 200 * time.Millisecond}
		hurry(c)
	})
	v := finish(t, n, submit(t, n, []byte(file), 100), time.Minute)
	found := results(t, n, v)
	effort.Is(t, len(found), len(want))
	for email, r := range found {
		effort.Is(t, fmt.Sprint(r.Outcome, " ", r.Reason), want[email], email)
	}
}

// verifyingAt is a service's answer about a verification in work.
func verifyingAt(completed, cancelled, total int64) api.Detail {
	return api.Detail{Summary: api.Summary{Status: "verifying",
		Progress: api.Progress{Total: &total, Completed: completed, Cancelled: cancelled}}}
}

// TestTimeLeftOfARunThatGoesOn: at a terminal and elsewhere, for addresses and for bytes.
func TestTimeLeftOfARunThatGoesOn(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			v := &progressView{out: &out, terminal: terminal}
			step := func(what func()) string {
				effort.OK(t, term.Sleep(t.Context(), 20*time.Second))
				out.Reset()
				what()
				return out.String()
			}
			step(func() { v.uploaded(90<<20, 100<<20) })
			if got := step(func() { v.uploaded(91<<20, 100<<20) }); terminal && !strings.Contains(got, "about 3 minutes left") {
				t.Errorf("uploading: got %q", got)
			}
			step(func() { v.progress(verifyingAt(9_000, 0, 10_000), client.Tally{"valid": 9_000}) })
			got := step(func() { v.progress(verifyingAt(9_100, 0, 10_000), client.Tally{"valid": 9_100}) })
			effort.Has(t, got, ", 5.0/s, about 3 minutes left: valid", "terminal", terminal)
			effort.Is(t, strings.Count(got, "left"), 1, "terminal", terminal)
		})
	}
}

// TestABarIsDrawnInOnePiece: bar and text show the same count. The last state is drawn even if it comes soon.
func TestABarIsDrawnInOnePiece(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		v := &progressView{out: &out, terminal: true}
		v.progress(verifyingAt(0, 0, 62), client.Tally{})
		v.progress(verifyingAt(30, 0, 62), client.Tally{"valid": 30}) // too soon to be drawn
		v.progress(verifyingAt(62, 0, 62), client.Tally{"valid": 60, "invalid": 2})
		v.stop()
		want := "\r  0% |" + strings.Repeat(" ", barWidth) + "| (0/62) verifying\x1b[K" +
			"\r100% |" + strings.Repeat("█", barWidth) + "| (62/62) verifying: valid 60, invalid 2\x1b[K\n"
		effort.Is(t, out.String(), want)
	})
}

// TestCountsOfALineAreOfOneMoment: the count of outcomes may be newer or older than the status.
func TestCountsOfALineAreOfOneMoment(t *testing.T) {
	for _, x := range []struct {
		completed, cancelled int64
		counted              client.Tally
		want                 string
	}{
		{10, 0, client.Tally{}, "verifying: 10 of 100 (10 %)\n"},
		{10, 0, client.Tally{"valid": 7, "invalid": 3}, "verifying: 10 of 100 (10 %): valid 7, invalid 3\n"},
		{10, 0, client.Tally{"valid": 8, "invalid": 4}, "verifying: 12 of 100 (12 %): valid 8, invalid 4\n"},
		{10, 0, client.Tally{"valid": 8}, "verifying: 10 of 100 (10 %): of 8 counted valid 8\n"},
		{10, 90, client.Tally{"valid": 12}, "verifying: 100 of 100 (100 %): valid 12\n"},
		{0, 0, client.Tally{}, "verifying: 0 of 100 (0 %)\n"},
	} {
		var out bytes.Buffer
		(&progressView{out: &out}).progress(verifyingAt(x.completed, x.cancelled, 100), x.counted)
		effort.Is(t, out.String(), x.want, fmt.Sprintf("%+v", x))
	}
}
