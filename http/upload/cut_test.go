package upload_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/http/upload"
	"rollcall/ledger"
)

// head sends the head of a PUT of the whole file and some of its bytes.
func (c *rawConn) begin(path string, total int, sent string) {
	c.send("PUT", path, []string{
		fmt.Sprintf("Content-Range: bytes 0-%d/%d", total-1, total), fmt.Sprintf("Content-Length: %d", total),
	}, sent)
}

// TestCutConnectionKeepsWhatArrived ends a body early in every way a client
// can, at places around the chunk's edge. fasthttp shows each as a clean end.
func TestCutConnectionKeepsWhatArrived(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	const chunk = upload.ChunkBytes
	total := 2*chunk + 1000
	file := bytesOf(total)
	for _, sent := range []int{1, 2, 8192, chunk - 1, chunk, chunk + 1, 2*chunk + 999} {
		for _, how := range []string{"half close", "close"} {
			t.Run(fmt.Sprintf("%s after %d", how, sent), func(t *testing.T) {
				id, path := rig.create(int64(total))
				conn := rig.dial()
				conn.begin(path, total, file[:sent])
				if how == "half close" {
					effort.OK(t, conn.Conn.(*net.TCPConn).CloseWrite())
					got := conn.reply()
					if want := fmt.Sprintf("bytes=0-%d", sent-1); got.status != 308 || got.durable != want || !got.close {
						t.Errorf("got %d Range %q close %v, want 308 %q true", got.status, got.durable, got.close, want)
					}
				} else if err := conn.Close(); err != nil {
					t.Fatal(err)
				}
				rig.waitDurable(id, int64(sent))
				conn = rig.dial()
				conn.put(path, int64(sent), int64(total), file[sent:])
				effort.Is(t, conn.reply().status, 200, "the rest")
				effort.Is(t, string(rig.file(id)), file, "the stored bytes are not the sent ones")
			})
		}
	}
}

// TestStalledClientIsCut has a client that stops lose its connection but not the session.
func TestStalledClientIsCut(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, func(o *upload.Options) {
		o.Window, o.WindowBytes, o.FirstByteTimeout = 200*time.Millisecond, 1000, 300*time.Millisecond
	})
	file := bytesOf(100_000)
	t.Run("stops in the body", func(t *testing.T) {
		id, path := rig.create(100_000)
		conn := rig.dial()
		conn.begin(path, 100_000, file[:5000])
		effort.Is(t, len(effort.Must(io.ReadAll(conn))(t)), 0, "read")
		rig.waitDurable(id, 5000)
	})
	t.Run("stops after the head", func(t *testing.T) {
		id, path := rig.create(100_000)
		conn := rig.dial()
		conn.begin(path, 100_000, "")
		effort.Is(t, len(effort.Must(io.ReadAll(conn))(t)), 0, "read")
		rig.waitDurable(id, 0)
	})
}

// TestFencedWriterOfAnotherNodeIsCut has the newer writer come in through the ledger alone, as from another node.
func TestFencedWriterOfAnotherNodeIsCut(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	const total = 2 * upload.ChunkBytes
	file := bytesOf(total)
	id, path := rig.create(total)
	older := rig.dial()
	older.begin(path, total, file[:upload.ChunkBytes])
	rig.waitDurable(id, upload.ChunkBytes)
	effort.Must(rig.store.OpenUpload(context.Background(), id))(t)
	_, _ = io.WriteString(older.Conn, file[upload.ChunkBytes:])
	b, err := io.ReadAll(older)
	effort.ErrorIf(t, len(b) > 0, "older writer read %q, %v; want a bare end", b, err)
	effort.Is(t, rig.durable(id), upload.ChunkBytes, "durable")
}

// TestNothingIsConfirmedBeforeItIsDurable holds the ledger's last write and sees that no answer comes; then it lets go.
func TestNothingIsConfirmedBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	id, path := rig.create(100)
	held, release := make(chan struct{}), make(chan struct{})
	rig.book.hook(func(write func() (ledger.Upload, error)) (ledger.Upload, error) {
		close(held)
		<-release
		return write()
	})
	conn := rig.dial()
	conn.put(path, 0, 100, bytesOf(100))
	<-held
	query := rig.dial()
	query.query(path, 100)
	if got := query.reply(); got.status != 308 || got.durable != "" {
		t.Errorf("query during the write got %d Range %q, want 308 and none", got.status, got.durable)
	}
	n := conn.Reader.Buffered()
	effort.ErrorIf(t, n > 0, "%d bytes of answer before the write ended", n)
	close(release)
	if got := conn.reply(); got.status != 200 || rig.durable(id) != 100 {
		t.Errorf("got %d with %d durable", got.status, rig.durable(id))
	}
	select {
	case <-rig.woken:
	case <-time.After(effort.Patience):
		t.Error("nobody was woken")
	}
}

// storageAway is the answer to every fault of the storage, and of a node that stops.
const storageAway = "503 storage_unavailable, again after 5, close true"

var errDisk = errors.New("database or disk is full")

// TestLedgerFaultAsksToComeAgain fails the second chunk, once without writing
// it and once after writing it: the client learns the truth by its query.
func TestLedgerFaultAsksToComeAgain(t *testing.T) {
	t.Parallel()
	const chunk = upload.ChunkBytes
	const total = 2*chunk + 10
	file := bytesOf(total)
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprintf("written %v", written), func(t *testing.T) {
			rig := newStorageRig(t, nil)
			id, path := rig.create(total)
			writes := 0
			rig.book.hook(func(write func() (ledger.Upload, error)) (ledger.Upload, error) {
				if writes++; writes != 2 {
					return write()
				}
				if written {
					if _, err := write(); err != nil {
						return ledger.Upload{}, err
					}
				}
				return ledger.Upload{}, errDisk
			})
			conn := rig.dial()
			conn.put(path, 0, total, file)
			effort.Is(t, conn.reply().refusal(), storageAway)
			want := int64(chunk)
			if written {
				want = 2 * chunk
			}
			conn = rig.dial()
			conn.query(path, total)
			effort.Is(t, conn.reply().durable, fmt.Sprintf("bytes=0-%d", want-1), "Range")
			conn = rig.dial()
			conn.put(path, 0, total, file)
			if got := conn.reply(); got.status != 200 || string(rig.file(id)) != file {
				t.Errorf("the repeat got %d %q", got.status, got.code)
			}
		})
	}
}

// TestStateOfTheFenceDecides has another node store more between the look at
// the session and the fence: nothing is stored twice.
func TestStateOfTheFenceDecides(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	file := bytesOf(100)
	id, path := rig.create(100)
	rig.book.onOpen = func() {
		ctx := context.Background()
		u, err := rig.store.OpenUpload(ctx, id)
		if err == nil {
			_, err = rig.store.AppendChunk(ctx, id, u.Writer, 0, []byte(file[:60]))
		}
		effort.ErrIs(t, err, nil)
	}
	conn := rig.dial()
	conn.put(path, 0, 100, file[:50])
	got := conn.reply()
	effort.ErrorIf(t, got.status != 308 || got.durable != "bytes=0-59" || !got.close || rig.durable(id) != 60,
		"got %d Range %q close %v with %d durable", got.status, got.durable, got.close, rig.durable(id))
}

// TestCancelDuringUploadEndsIt cancels while the body is on its way.
func TestCancelDuringUploadEndsIt(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	const total = 2*upload.ChunkBytes + 10
	file := bytesOf(total)
	id, path := rig.create(total)
	conn := rig.dial()
	conn.begin(path, total, file[:upload.ChunkBytes])
	rig.waitDurable(id, upload.ChunkBytes)
	effort.Must(rig.store.Cancel(context.Background(), rig.space, id))(t)
	_, _ = io.WriteString(conn.Conn, file[upload.ChunkBytes:])
	if got := conn.reply(); got.status != 410 || got.code != "upload_cancelled" || !got.close {
		t.Errorf("got %d %q close %v, want 410 upload_cancelled true", got.status, got.code, got.close)
	}
}

// TestStopKeepsWhatArrived stops the listener in mid body: the client is told
// to come again, and what was durable stays.
func TestStopKeepsWhatArrived(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, func(o *upload.Options) { o.LingerTimeout = 100 * time.Millisecond })
	const total = 2 * upload.ChunkBytes
	id, path := rig.create(total)
	conn, idle := rig.dial(), rig.dial()
	idle.query(path, total)
	idle.reply()
	conn.begin(path, total, bytesOf(upload.ChunkBytes+100))
	rig.waitDurable(id, upload.ChunkBytes)
	rig.stop()
	effort.Is(t, conn.reply().refusal(), storageAway)
	got := rig.durable(id)
	effort.ErrorIf(t, got < upload.ChunkBytes || got > upload.ChunkBytes+100, "durable %d", got)
	effort.ErrIs(t, idle.ended(), nil, "idle connection")
	rig.stop() // twice is fine
	_, err := net.Dial("tcp", rig.storage.Addr().String())
	effort.ErrorIf(t, err == nil, "the listener still takes connections")
}

// TestEarlyAnswerSurvivesALargeBody sends megabytes to a finished session:
// the answer must reach a client that writes all before it reads.
func TestEarlyAnswerSurvivesALargeBody(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	_, path := rig.create(3)
	seed := rig.dial()
	seed.put(path, 0, 3, "abc")
	seed.reply()
	body := strings.Repeat("x", 8<<20)
	for range 5 {
		conn := rig.dial()
		conn.send("PUT", path, []string{fmt.Sprintf("Content-Length: %d", len(body))}, body)
		got := conn.reply()
		effort.FatalIf(t, got.status != 200 || !got.close, "got %d close %v", got.status, got.close)
	}
}

func TestExpectContinueIsAnswered(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	id, path := rig.create(100)
	conn := rig.dial()
	conn.send("PUT", path, []string{"Expect: 100-continue", "Content-Length: 100"}, "")
	line, err := conn.ReadString('\n')
	effort.FatalIf(t, err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 "), "got %q, %v", line, err)
	effort.MustBe(t, effort.Must(conn.ReadString('\n'))(t), "\r\n")
	_, _ = io.WriteString(conn.Conn, bytesOf(100))
	if got := conn.reply(); got.status != 200 || rig.durable(id) != 100 {
		t.Errorf("got %d with %d durable", got.status, rig.durable(id))
	}
}

// TestPanicIsAnAnswer has a bug below the handler: the client gets an answer,
// the log says nothing of what was panicked with, and the node serves on.
func TestPanicIsAnAnswer(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, func(o *upload.Options) { o.UploadsMax = 1 })
	id, path := rig.create(100)
	rig.book.hook(func(func() (ledger.Upload, error)) (ledger.Upload, error) { panic(keyCanary) })
	conn := rig.dial()
	conn.put(path, 0, 100, bytesOf(100))
	got, want := conn.reply().refusal(), "503 internal_error, again after 5, close true"
	effort.ErrorIf(t, got != want, "got %s, want %s", got, want)
	rig.book.hook(nil)
	conn = rig.dial()
	conn.put(path, 0, 100, bytesOf(100))
	if got := conn.reply(); got.status != 200 || rig.durable(id) != 100 {
		t.Errorf("after the panic: got %s with %d durable", got.refusal(), rig.durable(id))
	}
}
