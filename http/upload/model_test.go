package upload_test

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"rollcall/config/effort"
	"rollcall/http/upload"
)

// modelSession is one upload session as a customer sees it, written independently of package upload: a slice that
// grows.
type modelSession struct {
	total  int    // declared
	stored []byte // durable
	gone   string // if the session ended early, the issue.code of every answer
}

// modelAnswer is the answer that the customer may expect.
type modelAnswer struct {
	status int
	code   string
	rng    string
}

var (
	modelData  = regexp.MustCompile(`^bytes ([0-9]+)-([0-9]+)/([0-9]+)$`)
	modelQuery = regexp.MustCompile(`^bytes \*/(\*|[0-9]+)$`)
)

// put answers one PUT with a Content-Range ("" for none) and a Content-Length of length. Of its body only sent
// arrives.
func (m *modelSession) put(contentRange string, length int, sent []byte) modelAnswer {
	if len(m.stored) == m.total {
		return modelAnswer{status: 200}
	}
	if m.gone != "" {
		return modelAnswer{status: 410, code: m.gone}
	}
	if q := modelQuery.FindStringSubmatch(contentRange); q != nil {
		if q[1] != "*" && q[1] != strconv.Itoa(m.total) {
			return modelAnswer{status: 400, code: "upload_length_mismatch"}
		}
		return m.progress()
	}
	first := 0
	if contentRange == "" {
		if length > m.total {
			return modelAnswer{status: 413, code: "upload_too_large"}
		}
		if length < m.total {
			return modelAnswer{status: 400, code: "upload_length_mismatch"}
		}
	} else {
		d := modelData.FindStringSubmatch(contentRange)
		if d == nil {
			return modelAnswer{status: 400, code: "upload_range_invalid"}
		}
		first, _ = strconv.Atoi(d[1])
		last, _ := strconv.Atoi(d[2])
		total, _ := strconv.Atoi(d[3])
		if first > last || last >= total {
			return modelAnswer{status: 400, code: "upload_range_invalid"}
		}
		if total != m.total {
			return modelAnswer{status: 400, code: "upload_length_mismatch"}
		}
		if last-first+1 != length {
			return modelAnswer{status: 400, code: "upload_range_invalid"}
		}
	}
	if first > len(m.stored) {
		return m.progress()
	}
	for i, b := range sent { // byte by byte: only the next byte is new
		if first+i == len(m.stored) && len(m.stored) < m.total {
			m.stored = append(m.stored, b)
		}
	}
	return m.progress()
}

// progress returns the answer about how far the session is.
func (m *modelSession) progress() modelAnswer {
	switch len(m.stored) {
	case m.total:
		return modelAnswer{status: 200}
	case 0:
		return modelAnswer{status: 308}
	}
	return modelAnswer{status: 308, rng: fmt.Sprintf("bytes=0-%d", len(m.stored)-1)}
}

// modelRun drives one real session and its model with the same requests.
type modelRun struct {
	*rapid.T
	rig   *storageRig
	model *modelSession
	id    uuid.UUID
	path  string
	most  int64 // the largest durable count in an answer so far
}

// TestUploadSessionMatchesItsModel sends random requests, cuts and second writers to a real session and to the model.
// It compares every answer, the durable count after it, and at the end the bytes (I13). The Range in answers never
// shrinks and never exceeds what the ledger has (I14).
func TestUploadSessionMatchesItsModel(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	rig.book.opened = make(chan struct{}, 1)
	sizes := []int{1, 2, 300, upload.ChunkBytes, upload.ChunkBytes + 1, 2*upload.ChunkBytes + 77}
	effort.Check(t, func(rt *rapid.T) {
		total := rapid.SampledFrom(sizes).Draw(rt, "total")
		m := &modelRun{T: rt, rig: rig, model: &modelSession{total: total}}
		m.id, m.path = rig.create(int64(total))
		rt.Repeat(map[string]func(*rapid.T){
			"":              m.check,
			"whole":         m.whole,
			"piece":         m.piece,
			"piece at end":  m.pieceAtEnd,
			"query":         m.query,
			"cut":           m.cut,
			"second writer": m.secondWriter,
			"no sense":      m.noSense,
			"end":           m.end,
		})
		// If a session ended before its bytes were read, its bytes are erased.
		effort.FatalIf(rt, m.model.gone == "" && len(m.model.stored) == total &&
			string(rig.file(m.id)) != string(m.model.stored), "the stored bytes are not the model's")
	})
}

// check compares the model with the ledger.
func (m *modelRun) check(t *rapid.T) {
	effort.MustBe(t, m.rig.durable(m.id), int64(len(m.model.stored)), "durable; of the model", len(m.model.stored),
		m.model.total)
}

// content draws a body. Its bytes differ from request to request, so that an overlap stored twice is noticed.
func content(t *rapid.T, n int) string {
	seed := rapid.Uint32().Draw(t, "seed")
	b := make([]byte, n)
	for i := range b {
		seed = seed*1664525 + 1013904223
		b[i] = byte(seed >> 24)
	}
	return string(b)
}

// compare sends one request to the session and to the model.
func (m *modelRun) compare(t *rapid.T, contentRange string, length int, body string) {
	want := m.model.put(contentRange, length, []byte(body))
	headers := []string{fmt.Sprintf("Content-Length: %d", length)}
	if contentRange != "" {
		headers = append(headers, "Content-Range: "+contentRange)
	}
	conn := m.rig.dial()
	defer conn.Close()
	conn.send("PUT", m.path, headers, body)
	if len(body) < length {
		effort.OK(t, conn.Conn.(*net.TCPConn).CloseWrite())
	}
	m.expect(t, conn, want)
}

// expect compares one answer, and checks I14.
func (m *modelRun) expect(t *rapid.T, conn *rawConn, want modelAnswer) {
	reply := effort.Must(conn.tryReply())(t)
	effort.MustBe(t, (modelAnswer{reply.status, reply.code, reply.durable}), want, "the model has",
		len(m.model.stored), m.model.total)
	if want.status != 308 {
		return
	}
	var told int64
	if want.rng != "" {
		last := effort.Must(strconv.ParseInt(reply.durable[len("bytes=0-"):], 10, 64))(t)
		told = last + 1
	}
	effort.FatalIf(t, told < m.most || told > m.rig.durable(m.id),
		"told %d after %d, the ledger has %d", told, m.most, m.rig.durable(m.id))
	m.most = told
}

func (m *modelRun) whole(t *rapid.T) {
	body := content(t, m.model.total)
	contentRange := fmt.Sprintf("bytes 0-%d/%d", m.model.total-1, m.model.total)
	if rapid.Bool().Draw(t, "without range") {
		contentRange = ""
	}
	m.compare(t, contentRange, len(body), body)
}

// piece sends any span of the file: old, overlapping, next, or beyond a gap.
func (m *modelRun) piece(t *rapid.T) {
	first := rapid.IntRange(0, m.model.total-1).Draw(t, "first")
	m.span(t, first, rapid.IntRange(first, m.model.total-1).Draw(t, "last"), false)
}

func (m *modelRun) pieceAtEnd(t *rapid.T) {
	first := min(len(m.model.stored), m.model.total-1)
	m.span(t, first, rapid.IntRange(first, m.model.total-1).Draw(t, "last"), false)
}

// cut sends a piece and ends the connection before its last byte.
func (m *modelRun) cut(t *rapid.T) {
	first := rapid.IntRange(0, min(len(m.model.stored), m.model.total-1)).Draw(t, "first")
	m.span(t, first, rapid.IntRange(first, m.model.total-1).Draw(t, "last"), true)
}

func (m *modelRun) span(t *rapid.T, first, last int, cut bool) {
	n := last - first + 1
	body := content(t, n)
	if cut && n > 1 { // at least one byte, because without a body there is no request
		body = body[:rapid.IntRange(1, n-1).Draw(t, "sent")]
	}
	m.compare(t, fmt.Sprintf("bytes %d-%d/%d", first, last, m.model.total), n, body)
}

func (m *modelRun) query(t *rapid.T) {
	total := rapid.SampledFrom([]string{strconv.Itoa(m.model.total), "*", strconv.Itoa(m.model.total + 1)}).
		Draw(t, "asked total")
	m.compare(t, "bytes */"+total, 0, "")
}

func (m *modelRun) noSense(t *rapid.T) {
	n := m.model.total
	contentRange := rapid.SampledFrom([]string{
		"", fmt.Sprintf("bytes 0-%d/%d", n, n+1), fmt.Sprintf("bytes 0-%d/%d", n, n), "bytes 1-0/1", "lines 0-1/2",
		fmt.Sprintf("bytes 0-0/%d", n),
	}).Draw(t, "range")
	body := content(t, n+1)
	m.compare(t, contentRange, len(body), body)
}

// secondWriter leaves one writer in the middle of a body and starts another: the first writer's bytes do not count,
// and it loses its connection.
func (m *modelRun) secondWriter(t *rapid.T) {
	first := len(m.model.stored)
	rest := m.model.total - first
	if rest < 2 || m.model.gone != "" {
		t.Skip("nothing is left to write about")
	}
	select { // forget earlier writers
	case <-m.rig.book.opened:
	default:
	}
	older := m.rig.dial()
	defer older.Close()
	sent := min(rest-1, upload.ChunkBytes-1) // less than a chunk, so that none of it is durable
	older.send("PUT", m.path, []string{
		fmt.Sprintf("Content-Length: %d", rest),
		fmt.Sprintf("Content-Range: bytes %d-%d/%d", first, m.model.total-1, m.model.total),
	}, content(t, sent))
	<-m.rig.book.opened
	m.span(t, first, rapid.IntRange(first, m.model.total-1).Draw(t, "last"), false)
	got, err := older.tryReply()
	effort.FatalIf(t, err == nil, "the older writer got %d", got.status)
}

// end closes the session for good, but rarely.
func (m *modelRun) end(t *rapid.T) {
	if m.model.gone != "" || rapid.IntRange(0, 9).Draw(t, "seldom") != 0 {
		t.Skip("not now")
	}
	if rapid.Bool().Draw(t, "by time") {
		m.rig.book.expire(m.id)
		m.model.gone = "upload_expired"
		return
	}
	effort.Must(m.rig.store.Cancel(t.Context(), m.rig.space, m.id))(t)
	m.model.gone = "upload_cancelled"
}
