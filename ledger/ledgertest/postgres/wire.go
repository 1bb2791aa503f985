package postgres

import (
	"bufio"
	"net"

	"github.com/jackc/pgx/v5/pgproto3"
)

// bufferBytes is how much is written in one go. Guess.
const bufferBytes = 16 << 10

// frame is one whole message in wire form: type, length, body.
type frame []byte

// kind is the type of the message.
func (f frame) kind() byte { return f[0] }

// side is one end of a connection.
type side struct {
	net.Conn
	out *bufio.Writer
}

// newSide buffers a connection.
func newSide(c net.Conn) side { return side{Conn: c, out: bufio.NewWriterSize(c, bufferBytes)} }

// send writes whole messages and flushes them.
func (s side) send(frames ...frame) error {
	for _, f := range frames {
		if _, err := s.out.Write(f); err != nil {
			return err
		}
	}
	return s.out.Flush()
}

// request is a message of the client, with the text of the statement that it runs.
type request struct {
	frame
	text string
	runs bool
}

// statements are the texts of the prepared statements and portals of a connection.
type statements struct {
	prepared map[string]string
	portals  map[string]string
}

// note follows a message of the client; for one that runs a statement it gives the text.
func (s statements) note(m pgproto3.FrontendMessage) (text string, runs bool) {
	switch m := m.(type) {
	case *pgproto3.Query:
		return m.String, true
	case *pgproto3.Parse:
		s.prepared[m.Name] = m.Query
	case *pgproto3.Bind:
		s.portals[m.DestinationPortal] = s.prepared[m.PreparedStatement]
	case *pgproto3.Execute:
		return s.portals[m.Portal], true
	case *pgproto3.Close:
		if m.ObjectType == 'S' {
			delete(s.prepared, m.Name)
		}
	}
	return "", false
}

// simpleQuery is a query as one message.
func simpleQuery(text string) (frame, error) { return (&pgproto3.Query{String: text}).Encode(nil) }

// failure is an error of the given code, as a server says it.
func failure(code string) (frame, error) {
	return (&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: code,
		Message: "injected by a test"}).Encode(nil)
}
