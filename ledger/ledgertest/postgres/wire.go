package postgres

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	// frameMax bounds a message. The largest of the ledger holds a chunk of an upload (4 MiB).
	frameMax = 16 << 20
	// startupMax bounds the first message, as PostgreSQL does (MAX_STARTUP_PACKET_LENGTH).
	startupMax = 10000
	// bufferBytes is how much is read or written in one go. Guess.
	bufferBytes = 16 << 10
)

// The request codes of a first message (PostgreSQL, Message Formats).
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// side is one end of a connection.
type side struct {
	net.Conn
	in  *bufio.Reader
	out *bufio.Writer
}

// newSide buffers a connection.
func newSide(c net.Conn) side {
	return side{Conn: c, in: bufio.NewReaderSize(c, bufferBytes), out: bufio.NewWriterSize(c, bufferBytes)}
}

// frame is one whole message: type, length, body.
type frame []byte

// kind is the type of the message.
func (f frame) kind() byte { return f[0] }

// body is what comes after the length.
func (f frame) body() []byte { return f[5:] }

// read reads one message.
func (s side) read() (frame, error) {
	head, err := s.in.Peek(5)
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n < 4 || n > frameMax {
		return nil, fmt.Errorf("%w: message %q of %d bytes", errProtocol, head[0], n)
	}
	f := make(frame, 1+n)
	_, err = io.ReadFull(s.in, f)
	return f, err
}

// readStartup reads a first message, which has no type, and returns its code.
func (s side) readStartup() (message []byte, code uint32, err error) {
	head, err := s.in.Peek(8)
	if err != nil {
		return nil, 0, err
	}
	n := binary.BigEndian.Uint32(head)
	if n < 8 || n > startupMax {
		return nil, 0, fmt.Errorf("%w: startup of %d bytes", errProtocol, n)
	}
	message = make([]byte, n)
	code = binary.BigEndian.Uint32(head[4:])
	_, err = io.ReadFull(s.in, message)
	return message, code, err
}

// send writes whole messages and flushes them.
func (s side) send(frames ...frame) error {
	for _, f := range frames {
		if _, err := s.out.Write(f); err != nil {
			return err
		}
	}
	return s.out.Flush()
}

// statements are the texts of the prepared statements and portals of a connection.
type statements struct {
	prepared map[string]string
	portals  map[string]string
}

// note follows a message of the client; for one that runs a statement it gives the text.
func (s statements) note(f frame) (text string, runs bool, err error) {
	switch f.kind() {
	case 'Q':
		var m pgproto3.Query
		err = m.Decode(f.body())
		return m.String, true, err
	case 'P':
		var m pgproto3.Parse
		if err = m.Decode(f.body()); err == nil {
			s.prepared[m.Name] = m.Query
		}
	case 'B':
		var m pgproto3.Bind
		if err = m.Decode(f.body()); err == nil {
			s.portals[m.DestinationPortal] = s.prepared[m.PreparedStatement]
		}
	case 'E':
		var m pgproto3.Execute
		err = m.Decode(f.body())
		return s.portals[m.Portal], true, err
	case 'C':
		var m pgproto3.Close
		if err = m.Decode(f.body()); err == nil && m.ObjectType == 'S' {
			delete(s.prepared, m.Name)
		}
	case 'd', 'c', 'f', 'H', 'F':
		err = fmt.Errorf("%w: message %q of the client", errProtocol, f.kind())
	}
	return "", false, err
}

// simpleQuery is a query as one message.
func simpleQuery(text string) (frame, error) { return (&pgproto3.Query{String: text}).Encode(nil) }

// failure is an error of the given code, as a server says it.
func failure(code string) (frame, error) {
	return (&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: code,
		Message: "injected by a test"}).Encode(nil)
}

// wantsReply reports whether an authentication message asks the client for one (PostgreSQL, Message Formats:
// AuthenticationCleartextPassword, MD5Password, SASL and SASLContinue).
func wantsReply(f frame) bool {
	if f.kind() != 'R' || len(f.body()) < 4 {
		return false
	}
	return bytes.IndexByte([]byte{3, 5, 10, 11}, f.body()[3]) >= 0
}
