package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"rollcall/http/api"
	"rollcall/http/listen"
	"rollcall/ledger"
	"rollcall/smtp"
)

const (
	resultsHeader = "email,result,message,checked_at\n"

	// resultsBuffer is the size of one write. Guess: so large that system calls cost little, and small enough for
	// many downloads.
	resultsBuffer = 64 << 10
)

// results answers GET /v1/verifications/{id}/results. The first buffer is filled before the status is sent, so that an
// error of the ledger can still be a refusal; a later failure cuts the connection without a proper end.
func (s *Server) results(r *request) {
	release := s.limits.downloads.takeSlot(r.key.ID)
	if release == nil {
		s.metrics.limited.WithLabelValues("downloads").Inc()
		s.refuse(r, api.RateLimited, 5)
		return
	}
	d := s.newDownload(r, release)
	err := d.fill()
	if err == nil && r.IsHead() {
		_ = d.Close()
		s.writeResultsHead(r)
		r.Response.SkipBody = true
		r.Response.Header.SetContentLength(-1)
		return
	}
	if err != nil {
		_ = d.Close()
		s.notFoundOr(r, "read results", err)
		return
	}
	s.writeResultsHead(r)
	d.handedOver.Store(true)
	r.SetBodyStream(d, -1)
}

func (s *Server) writeResultsHead(r *request) {
	h := &r.Response.Header
	r.SetContentType("text/csv")
	h.Set(fasthttp.HeaderCacheControl, "no-store")
	h.Set(fasthttp.HeaderXContentTypeOptions, "nosniff")
	name := `attachment; filename="results-` + r.id.String() + `.csv"`
	if r.fileName != "" {
		name = attachment(r.fileName)
	}
	h.Set(fasthttp.HeaderContentDisposition, name)
}

// downloadStall bounds each read of the ledger that fills a buffer of results. A read takes milliseconds. The first
// read comes before the status and is bounded by ledgerTimeout.
const downloadStall = 30 * time.Second

// errDownloadOver stops reading the ledger when the client has gone.
var errDownloadOver = errors.New("http: the download has ended")

// download is the body of a results answer. It reads buffers from the ledger. Only one goroutine at a time may use
// it.
type download struct {
	next       func() ([]byte, error, bool)
	stop       func()
	stall      *time.Timer   // cancels a question to the ledger that takes too long
	patience   time.Duration // with the next one
	release    func()
	panicked   func()
	buffer     []byte // filled but not yet read
	err        error  // why
	handedOver atomic.Bool
	ended      bool
}

// newDownload prepares a download. The download gives its slot back at the end. The ledger is asked only in fill.
func (s *Server) newDownload(r *request, giveSlot func()) *download {
	ctx, cancel := context.WithCancel(ledger.WithTenant(context.Background(), r.key.Workspace))
	d := &download{stall: time.AfterFunc(ledgerTimeout, cancel), patience: ledgerTimeout, panicked: s.metrics.panics.Inc}
	workspace, id, request, wanted := r.key.Workspace, r.id, listen.RequestID(r.RequestCtx), r.rows
	d.release = func() {
		cancel()
		giveSlot()
		if d.handedOver.Load() {
			s.work.Add(-1)
			s.limits.places.Return(workspace, 1)
			if d.err != nil && !errors.Is(d.err, io.EOF) {
				s.log.Warn("results cut", "verification", id, "request", request, "err", d.err)
			}
		}
	}
	d.next, d.stop = iter.Pull2(func(yield func([]byte, error) bool) {
		rows := rowWriter{spreadsheet: wanted.Spreadsheet}
		buffer := append(make([]byte, 0, resultsBuffer+4096), resultsHeader...)
		err := s.options.Book.Results(ctx, workspace, id, func(row ledger.Result) error {
			if !wanted.has(row) {
				return nil
			}
			buffer = rows.append(buffer, row)
			if len(buffer) < resultsBuffer {
				return nil
			}
			if !yield(buffer, nil) {
				return errDownloadOver
			}
			buffer = buffer[:0]
			return nil
		})
		if !errors.Is(err, errDownloadOver) && (err != nil || len(buffer) > 0) {
			yield(buffer, err)
		}
	})
	return d
}

// fill reads the next buffer when the last one is used up. It returns io.EOF at the end. A panic of the ledger
// becomes an error, because the library would swallow it here.
func (d *download) fill() (err error) {
	if len(d.buffer) > 0 || d.err != nil {
		return d.err
	}
	defer func() {
		if p := recover(); p != nil {
			d.panicked()
			err = fmt.Errorf("%w: reading results panicked with a %T", errNoAnswer, p)
		}
		d.err = err
	}()
	d.stall.Reset(d.patience)
	d.patience = downloadStall
	buffer, err, more := d.next()
	d.stall.Stop()
	switch {
	case err != nil:
		return err
	case !more:
		return io.EOF
	}
	d.buffer = buffer
	return nil
}

// Read reads the next part of the CSV.
func (d *download) Read(p []byte) (int, error) {
	if len(d.buffer) == 0 {
		if err := d.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, d.buffer)
	d.buffer = d.buffer[n:]
	return n, nil
}

// SupportsBodyWriteTo lets the library write our buffers without copying them.
func (d *download) SupportsBodyWriteTo() bool { return true }

// WriteTo writes the whole CSV. If it returns an error, the connection is cut.
func (d *download) WriteTo(w io.Writer) (int64, error) {
	var written int64
	for {
		if err := d.fill(); err != nil {
			if errors.Is(err, io.EOF) {
				return written, nil
			}
			return written, err
		}
		n, err := w.Write(d.buffer)
		written += int64(n)
		d.buffer = d.buffer[n:]
		if err != nil {
			d.err = err
			return written, err
		}
	}
}

// Close ends the download. The library calls it after the last byte and after a failure. A second call does nothing.
func (d *download) Close() error {
	if d.ended {
		return nil
	}
	d.ended = true
	d.stall.Stop()
	d.stop()
	d.release()
	return nil
}

// rowWriter writes rows (RFC 4180). It caches what many rows share: the texts between address and time, and the last
// date.
type rowWriter struct {
	spreadsheet bool // addresses must not look like formulas

	middles [smtp.Error + 1][]string // by outcome and reason: ",valid,message"
	flags   smtp.FlagCache
	day     int64 // date in the text, as days since 1970
	text    [len("2006-01-02T")]byte
}

// append appends one row: the address as in the file, outcome, reason with the flags of the address, and the time of
// the final evidence.
func (w *rowWriter) append(b []byte, row ledger.Result) []byte {
	email := row.Email
	if w.spreadsheet {
		email = guardCell(email)
	}
	b = appendField(b, email)
	b = append(b, w.middle(row.Outcome, row.Reason)...)
	said := w.flags.Of(row.Email)
	said.Operator = row.Operator.String()
	b = appendFlags(b, said)
	return append(w.appendTime(append(b, ','), row.At), '\n')
}

// appendFlags appends flags to a message. The message may be quoted; flags never need quotes.
func appendFlags(b []byte, f smtp.Flags) []byte {
	last := len(b) - 1
	if b[last] != '"' {
		return f.Append(b)
	}
	return append(f.Append(b[:last]), '"')
}

// middle returns the text between address and time.
func (w *rowWriter) middle(o smtp.Outcome, r smtp.Reason) string {
	if int(o) >= len(w.middles) {
		return makeMiddle(o, r)
	}
	if w.middles[o] == nil {
		w.middles[o] = make([]string, math.MaxUint8+1)
	}
	if w.middles[o][r] == "" {
		w.middles[o][r] = makeMiddle(o, r)
	}
	return w.middles[o][r]
}

func makeMiddle(o smtp.Outcome, r smtp.Reason) string {
	return string(append([]byte(","+o.String()+","), appendField(nil, r.Message())...))
}

// appendTime does what api.AppendTime does, but formats each date once for many rows. Rows in file order have their
// times in any order, so only the day is cached.
func (w *rowWriter) appendTime(b []byte, at time.Time) []byte {
	const day = 24 * 60 * 60
	second := at.Unix()
	if second/day != w.day || w.text[0] == 0 {
		var whole [32]byte
		w.day = second / day
		copy(w.text[:], api.AppendTime(whole[:0], at))
	}
	second %= day
	b = appendTwo(append(b, w.text[:]...), second/3600, ':')
	b = appendTwo(appendTwo(b, second/60%60, ':'), second%60, '.')
	ms := at.Nanosecond() / int(time.Millisecond)
	return append(b, byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

func appendTwo(b []byte, n int64, next byte) []byte {
	return append(b, byte('0'+n/10), byte('0'+n%10), next)
}

// appendField quotes a field if that is necessary (RFC 4180 §2, rules 6 and 7).
func appendField(b []byte, field string) []byte {
	if !strings.ContainsAny(field, ",\"\r\n") {
		return append(b, field...)
	}
	return append(append(append(b, '"'), strings.ReplaceAll(field, `"`, `""`)...), '"')
}

// filenameMax is the documented bound of the header, in characters.
const filenameMax = 1024

// parseFilename decodes a percent-encoded base name, once. It refuses text that is not UTF-8, path separators, names
// that ledger.CheckName refuses, and the directories "." and "..". The name is shown to its owner and never used as a
// path.
func parseFilename(text []byte) (string, bool) {
	if !utf8.Valid(text) || utf8.RuneCount(text) > filenameMax {
		return "", false
	}
	name, err := url.PathUnescape(string(text))
	if err != nil || !utf8.ValidString(name) {
		return "", false
	}
	fits := !strings.ContainsAny(name, `/\`) && ledger.CheckName(name) == nil
	return name, fits && name != "" && name != "." && name != ".."
}
