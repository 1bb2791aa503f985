package upload_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"rollcall/config/effort"
	"rollcall/http/upload"
)

// head is a request with one Content-Range.
func head(contentRange string, length int64) upload.Request {
	return upload.Request{ContentRanges: []string{contentRange}, Length: length}
}

// bare is a request without Content-Range.
func bare(length int64) upload.Request { return upload.Request{Length: length} }

func refused(err error) upload.Decision { return upload.Decision{Action: upload.Refuse, Err: err} }

func incomplete(durable int64) upload.Decision {
	return upload.Decision{Action: upload.Incomplete, Durable: durable}
}

func take(durable, skip, store int64) upload.Decision {
	return upload.Decision{Action: upload.Take, Durable: durable, Skip: skip, Store: store}
}

// TestSessionDecides walks through the table of the storage URL: a file of
// 100 bytes, 40 of them durable where nothing else is said.
func TestSessionDecides(t *testing.T) {
	fresh := upload.Session{Declared: 100}
	open := upload.Session{Declared: 100, Durable: 40}
	full := upload.Session{Declared: 100, Durable: 100}
	expired := upload.Session{Declared: 100, Durable: 40, Expired: true}
	cancelled := upload.Session{Declared: 100, Durable: 40, Cancelled: true}
	done := upload.Decision{Action: upload.Done, Durable: 100}
	cases := []struct {
		name    string
		session upload.Session
		request upload.Request
		want    upload.Decision
	}{
		{"whole file", fresh, head("bytes 0-99/100", 100), take(0, 0, 100)},
		{"whole file without range", fresh, bare(100), take(0, 0, 100)},
		{"whole file again, part durable", open, head("bytes 0-99/100", 100), take(40, 40, 60)},
		{"whole file again without range", open, bare(100), take(40, 40, 60)},
		{"piece at the end, not last", open, head("bytes 40-41/100", 2), take(40, 0, 2)},
		{"piece at the end, last", open, head("bytes 40-99/100", 60), take(40, 0, 60)},
		{"overlap", open, head("bytes 30-49/100", 20), take(40, 10, 10)},
		{"overlap by all but one byte", open, head("bytes 0-40/100", 41), take(40, 40, 1)},
		{"all old", open, head("bytes 0-39/100", 40), incomplete(40)},
		{"gap", open, head("bytes 41-99/100", 59), incomplete(40)},
		{"gap at byte zero", fresh, head("bytes 1-99/100", 99), incomplete(0)},
		{"query", open, head("bytes */100", 0), incomplete(40)},
		{"query without length", open, head("bytes */100", upload.LengthUnknown), incomplete(40)},
		{"query of unknown total", open, head("bytes */*", 0), incomplete(40)},
		{"query, nothing stored", fresh, head("bytes */100", 0), incomplete(0)},
		{"query with a body", open, head("bytes */100", 3), refused(upload.ErrRangeInvalid)},
		{"query with another total", open, head("bytes */99", 0), refused(upload.ErrLengthMismatch)},
		{"query, complete", full, head("bytes */100", 0), done},
		{"query with another total, complete", full, head("bytes */7", 0), done},
		{"other bytes, complete", full, head("bytes 0-4/5", 5), done},
		{"nonsense, complete", full, head("nonsense", 5), done},
		{"complete and cancelled later", upload.Session{Declared: 1, Durable: 1, Cancelled: true}, bare(1),
			upload.Decision{Action: upload.Done, Durable: 1}},
		{"complete and expired later", upload.Session{Declared: 1, Durable: 1, Expired: true}, bare(1),
			upload.Decision{Action: upload.Done, Durable: 1}},
		{"data with another total", open, head("bytes 40-49/50", 10), refused(upload.ErrLengthMismatch)},
		{"data beyond the file", open, head("bytes 40-100/101", 61), refused(upload.ErrLengthMismatch)},
		{"last beyond the total", open, head("bytes 40-100/100", 61), refused(upload.ErrRangeInvalid)},
		{"first after last", open, head("bytes 41-40/100", 0), refused(upload.ErrRangeInvalid)},
		{"length shorter than the range", open, head("bytes 40-49/100", 9), refused(upload.ErrRangeInvalid)},
		{"length longer than the range", open, head("bytes 40-49/100", 11), refused(upload.ErrRangeInvalid)},
		{"gap with a wrong length", open, head("bytes 50-59/100", 9), refused(upload.ErrRangeInvalid)},
		{"other unit", open, head("rows 40-49/100", 10), refused(upload.ErrRangeInvalid)},
		{"several ranges", open, head("bytes 40-44,45-49/100", 10), refused(upload.ErrRangeInvalid)},
		{"several headers", open,
			upload.Request{ContentRanges: []string{"bytes 40-49/100", "bytes 40-49/100"}, Length: 10},
			refused(upload.ErrRangeInvalid)},
		{"no range, short", open, bare(99), refused(upload.ErrLengthMismatch)},
		{"no range, empty", open, bare(0), refused(upload.ErrLengthMismatch)},
		{"no range, long", open, bare(101), refused(upload.ErrTooLarge)},
		{"no length", open, bare(upload.LengthUnknown), refused(upload.ErrLengthRequired)},
		{"no length with a data range", open, head("bytes 40-49/100", upload.LengthUnknown),
			refused(upload.ErrLengthRequired)},
		{"transfer encoding", open, upload.Request{Length: upload.LengthUnknown, Transfer: true},
			refused(upload.ErrLengthRequired)},
		{"transfer encoding on a complete file", full, upload.Request{Length: 100, Transfer: true},
			refused(upload.ErrLengthRequired)},
		{"content encoding", open, upload.Request{Length: 100, Encoded: true}, refused(upload.ErrEncoding)},
		{"expired, data", expired, head("bytes 40-99/100", 60), refused(upload.ErrExpired)},
		{"expired, query", expired, head("bytes */100", 0), refused(upload.ErrExpired)},
		{"cancelled, data", cancelled, head("bytes 40-99/100", 60), refused(upload.ErrCancelled)},
		{"cancelled, query", cancelled, head("bytes */100", 0), refused(upload.ErrCancelled)},
		{"expired before a wrong total is seen", expired, head("bytes */7", 0), refused(upload.ErrExpired)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := upload.Decide(c.session, c.request); got != c.want {
				t.Errorf("Decide(%+v, %+v) = %+v, want %+v", c.session, c.request, got, c.want)
			}
		})
	}
}

// TestEveryDecisionKeepsTheSession draws sessions and heads and checks what
// must hold for all of them: the whole body is accounted for, nothing is
// stored twice or beyond the file, and only full sessions are done.
func TestEveryDecisionKeepsTheSession(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		declared := rapid.Int64Range(1, 50).Draw(t, "declared")
		s := upload.Session{
			Declared: declared, Durable: rapid.Int64Range(0, declared).Draw(t, "durable"),
			Expired: rapid.Bool().Draw(t, "expired"), Cancelled: rapid.Bool().Draw(t, "cancelled"),
		}
		r := bare(rapid.Int64Range(-1, 60).Draw(t, "length"))
		if rapid.Bool().Draw(t, "ranged") {
			text := rapid.StringMatching(`bytes ([0-5]?[0-9]-[0-5]?[0-9]|\*)/([0-5]?[0-9]|\*)`).Draw(t, "range")
			r.ContentRanges = []string{text}
		}
		d := upload.Decide(s, r)
		switch d.Action {
		case upload.Take:
			if d.Skip+d.Store != r.Length || d.Store < 1 || s.Durable+d.Store > s.Declared ||
				s.Expired || s.Cancelled {
				t.Fatalf("Decide(%+v, %+v) = %+v", s, r, d)
			}
		case upload.Done:
			if !s.Complete() {
				t.Fatalf("Decide(%+v, %+v) = done", s, r)
			}
		case upload.Incomplete:
			if s.Complete() || d.Durable != s.Durable {
				t.Fatalf("Decide(%+v, %+v) = %+v", s, r, d)
			}
		case upload.Refuse:
			if d.Err == nil || (s.Complete() && !errors.Is(d.Err, upload.ErrLengthRequired)) {
				t.Fatalf("Decide(%+v, %+v) = %+v", s, r, d)
			}
		default:
			t.Fatalf("Decide(%+v, %+v) = %+v", s, r, d)
		}
	})
}
