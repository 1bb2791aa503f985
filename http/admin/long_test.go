package admin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/ledger/ledgertest"
	"rollcall/smtp"
)

// TestEntriesOfAVerification in two pages, and what is refused.
func TestEntriesOfAVerification(t *testing.T) {
	r := newRig(t)
	d := ledgertest.NewFixture(t, r.book, 50)
	v, l := d.Prepares(3)
	d.Settles(l, 1, 0, 1, smtp.Valid)
	d.Settles(l, 2, 2, 2, smtp.Unknown)
	path := "/v1/workspaces/" + d.Workspace.String() + "/verifications/" + v.ID.String() + "/entries"
	want := map[string]any{"verification": v.ID.String(), "status": "completed", "addresses": 3.0, "held": 3.0,
		"charged": 2.0, "released": 1.0, "still_held": 0.0, "count": 3.0}
	var lines []string
	for after := ""; ; {
		status, page := r.call("GET", path+"?limit=2"+after, "")
		for _, e := range page["entries"].([]any) {
			e := e.(map[string]any)
			if len(e) != 4 || e["at"] == "" {
				t.Errorf("entry %v", e)
			}
			lines = append(lines, fmt.Sprint(e["kind"], " ", e["settlement"], " ", e["credits"]))
		}
		next, more := page["next"].(string)
		delete(page, "entries")
		delete(page, "next")
		if status != 200 || !same(page, want) {
			t.Errorf("%d %v, want %v", status, page, want)
		}
		if !more {
			break
		}
		after = "&after=" + next
	}
	effort.Is(t, strings.Join(lines, ", "), "release 2 1, charge 1 2, hold <nil> 3", "entries")
	if _, page := r.call("GET", path, ""); len(page["entries"].([]any)) != 3 || page["next"] != nil {
		t.Errorf("without a limit: %v", page)
	}
	for query, want := range map[string]int{"?limit=0": 400, "?limit=1001": 400, "?limit=a": 400,
		"?after=a": 400, "?after=1.2.gift": 400, "?after=1.2": 400, "?limit=1000": 200} {
		if status, out := r.call("GET", path+query, ""); status != want {
			t.Errorf("%s: %d %v, want %d", query, status, out, want)
		}
	}
	other := strings.Replace(path, d.Workspace.String(), uuid.NewString(), 1)
	if status, out := r.call("GET", other, ""); status != 404 || codeOf(out) != "verification_not_found" {
		t.Errorf("in another workspace: %d %v", status, out)
	}
}

// TestBackupStreamsOneAtATime and gives the place back, also after a reader that went away.
func TestBackupStreamsOneAtATime(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	closed := make(chan struct{}, 9)
	begun, goOn := make(chan struct{}), make(chan struct{})
	r := newRig(t, backups(func(context.Context) (io.ReadCloser, int64, error) {
		begun <- struct{}{}
		<-goOn
		return closing{bytes.NewReader(content), closed}, int64(len(content)), nil
	}))
	answer := make(chan string, 1)
	go func() {
		_, text := r.ask("GET", "/v1/backup", "")
		answer <- text
	}()
	<-begun
	if status, out := r.call("GET", "/v1/backup", ""); status != 409 || codeOf(out) != "backup_running" {
		t.Errorf("a second one: %d %v", status, out)
	}
	goOn <- struct{}{}
	if got := <-answer; got != string(content) {
		t.Errorf("got %d bytes, want %d", len(got), len(content))
	}
	<-closed
	ctx, cancel := context.WithCancel(t.Context())
	request := effort.Must(http.NewRequestWithContext(ctx, "GET", r.url+"/v1/backup", nil))(t)
	request.Header.Set("Authorization", "Bearer "+r.token)
	gone := make(chan error, 1)
	go func() {
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			answer.Body.Close()
		}
		gone <- err
	}()
	<-begun
	cancel()
	effort.ErrIs(t, <-gone, context.Canceled, "cancelled")
	goOn <- struct{}{}
	<-closed
}

// backups makes a node's backups with f.
func backups(f func(context.Context) (io.ReadCloser, int64, error)) func(*admin.Options) {
	return func(o *admin.Options) { o.Backup = f }
}

type closing struct {
	io.Reader
	closed chan<- struct{}
}

func (c closing) Close() error { c.closed <- struct{}{}; return nil }

// TestBackupThatFails says why: before the first byte in words, after it by ending early.
func TestBackupThatFails(t *testing.T) {
	var result io.Reader
	r := newRig(t, backups(func(context.Context) (io.ReadCloser, int64, error) {
		if result == nil {
			return nil, 0, errors.New("the disk is full: make room")
		}
		return io.NopCloser(result), 1 << 20, nil
	}))
	status, out := r.call("GET", "/v1/backup", "")
	if e := out["error"].(map[string]any); status != 500 || e["code"] != "backup_failed" ||
		!strings.Contains(e["message"].(string), "make room") {
		t.Errorf("got %d %v", status, out)
	}
	result = io.MultiReader(strings.NewReader("some"), iotest.ErrReader(errors.New("disk")))
	request := effort.Must(http.NewRequest("GET", r.url+"/v1/backup", nil))(t)
	request.Header.Set("Authorization", "Bearer "+r.token)
	answer := effort.Must(http.DefaultClient.Do(request))(t)
	defer answer.Body.Close()
	effort.Denied(io.Copy(io.Discard, answer.Body))(t, io.ErrUnexpectedEOF, "half a backup")
	if status, out := newRig(t).call("GET", "/v1/backup", ""); status != 409 || codeOf(out) != "not_embedded" {
		t.Errorf("of a server database: %d %v", status, out)
	}
}

// TestDrainEndsLongCalls so that the ledger can be closed.
func TestDrainEndsLongCalls(t *testing.T) {
	begun := make(chan struct{})
	r := newRig(t, backups(func(ctx context.Context) (io.ReadCloser, int64, error) {
		close(begun)
		<-ctx.Done()
		return nil, 0, ctx.Err()
	}))
	go func() {
		<-begun
		r.server.Drain()
		r.server.Drain()
	}()
	if status, out := r.call("GET", "/v1/backup", ""); status != 500 {
		t.Errorf("backup: %d %v", status, out)
	}
	if status, out := r.call("GET", "/v1/audit", ""); status != 503 {
		t.Errorf("audit after the drain: %d %v", status, out)
	}
}
