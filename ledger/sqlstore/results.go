package sqlstore

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/ledger/transitions"
	"rollcall/smtp"
	"rollcall/smtp/flags"
)

// pageSettlements is the number of settlements that one question reads, so that
// a large file does not keep a session from the requests that wait for one: with
// 1,000 outcomes in each it takes some 10 ms.
const pageSettlements = 64

// Results calls yield for each settled address in ordinal order, as of the
// settlements at the start, since what is settled never changes. All of the
// ledger is read before the first yield: a slow yield holds neither a session nor
// more memory than a part of a sorter.
func (s files) Results(ctx context.Context, workspace, id uuid.UUID,
	yield func(ledger.Result) error) (err error) {
	var v *transitions.Row
	err = s.view(ctx, func(t *tx) (err error) {
		v, err = t.ReadOf(workspace, id)
		return err
	})
	if err == nil && v.ResultsDeleted {
		err = ledger.ErrResultsExpired
	}
	if err != nil {
		return fmt.Errorf("read results of verification %s: %w", id, err)
	}
	if v.Settlements == 0 {
		return nil
	}
	ordered := newSorter(s.db.Scratch(), v.Total)
	defer func() { err = errors.Join(err, ordered.close()) }()
	if err := s.fill(ctx, ordered, v); err != nil {
		return fmt.Errorf("read results of verification %s: %w", id, err)
	}
	return ordered.drain(yield)
}

const pageOfSettlements = `SELECT payload FROM settlements WHERE verification = ?
	AND number >= ? AND number < ? ORDER BY number`

// fill puts all settlements of v into a sorter.
func (s files) fill(ctx context.Context, ordered *sorter, v *transitions.Row) error {
	if err := s.walk(ctx, v, ordered.add); err != nil {
		return err
	}
	return ordered.filled()
}

// walk calls take with each settlement of v, by number; the batch is good until take returns.
func (s files) walk(ctx context.Context, v *transitions.Row, take func(b *ledger.Batch) error) error {
	var batch ledger.Batch
	number := int64(1) // of the next one
	next := func(rows *sql.Rows) error {
		var payload sql.RawBytes
		if err := rows.Scan(&payload); err != nil {
			return err
		}
		if len(payload) == 0 {
			return ledger.ErrResultsExpired // erased since the start
		}
		if err := batch.Decode(payload); err != nil {
			return err
		}
		number++
		return take(&batch)
	}
	for number <= v.Settlements {
		begun, end := number, min(number+pageSettlements, v.Settlements+1)
		err := s.view(ctx, func(t *tx) error {
			return t.Each(next, pageOfSettlements, v.ID[:], begun, end)
		})
		// What is settled never changes: a page that was cut goes on where it was cut.
		if cut := errors.Is(err, engine.ErrUnavailable) && number > begun; cut && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return err
		}
		if number < end {
			return fmt.Errorf("one of the settlements %d to %d is not there", begun, end-1)
		}
	}
	return nil
}

const (
	// sorterParts bounds the parts of a sorter, each of which has a block of its own
	// while it is filled.
	sorterParts = 64
	// sorterMemory bounds those blocks together: 16 KiB for each of 64 parts. Guess:
	// large enough that system calls do not count, small enough for many downloads.
	sorterMemory = 1 << 20
	// partOrdinals is the least number of ordinals of a part; what a reader holds
	// is one part, some 42 bytes for each. A file of 1,000,000 makes 62 parts.
	partOrdinals = 1 << 14
	// recordHead is what stands before an address in the file: its ordinal within
	// the part (4), its length (2), outcome, reason, the time (8), and the operator.
	recordHead = 17
)

// sorter brings results into the order of their ordinals with memory that hardly
// grows with the file: while it is filled each result goes to its part, a range
// of ordinals, and the parts go block by block to a file; then they are read one
// after the other. A small one stays in memory.
//
// The file is the process's own (mode 0600) and has no name, so it ends with the
// process, however that ends. It is used by one goroutine.
type sorter struct {
	folder string // of the file
	total  int64  // ordinals are below
	width  int64  // ordinals of a part
	parts  []part
	file   *os.File // nil: nothing was written yet
	size   int64    // of the file
}

// part is the results of some following ordinals, in any order.
type part struct {
	open   []byte  // what is not yet in the file
	blocks []block // what is
	length int     // bytes of all of it
}

// block is a piece of a part in the file.
type block struct {
	at     int64
	length int
}

// newSorter makes the sorter of total results; its file, if it needs one, is in folder.
func newSorter(folder string, total int64) *sorter {
	width := max(partOrdinals, (total+sorterParts-1)/sorterParts)
	return &sorter{folder: folder, total: total, width: width, parts: make([]part, (total+width-1)/width)}
}

// add puts the results of a settlement into their parts. ledger.ErrPayload for an
// ordinal outside of the file.
func (s *sorter) add(b *ledger.Batch) error {
	var head [recordHead]byte
	most := sorterMemory / len(s.parts)
	for i, ordinal := range b.Ordinals {
		if ordinal >= s.total {
			return fmt.Errorf("ordinal %d of %d: %w", ordinal, s.total, ledger.ErrPayload)
		}
		email, p := b.Email(i), &s.parts[ordinal/s.width]
		if len(p.open)+recordHead+len(email) > most {
			if err := s.write(p); err != nil {
				return err
			}
		}
		binary.LittleEndian.PutUint32(head[:], uint32(ordinal%s.width))
		binary.LittleEndian.PutUint16(head[4:], uint16(len(email)))
		head[6], head[7] = byte(b.Outcomes[i]), byte(b.Reasons[i])
		binary.LittleEndian.PutUint64(head[8:], uint64(b.Times[i]))
		head[16] = byte(b.Operators[i])
		p.open = append(append(p.open, head[:]...), email...)
		p.length += recordHead + len(email)
	}
	return nil
}

// filled says that nothing more will be added: if there is a file, all goes to
// it, and the memory for filling goes.
func (s *sorter) filled() error {
	for i := range s.parts {
		p := &s.parts[i]
		if s.file == nil || len(p.open) == 0 {
			continue
		}
		if err := s.write(p); err != nil {
			return err
		}
		p.open = nil
	}
	return nil
}

// write moves the open block of a part to the file.
func (s *sorter) write(p *part) error {
	if s.file == nil {
		if err := s.create(); err != nil {
			return fmt.Errorf("make a file to order results: %w", err)
		}
	}
	if _, err := s.file.WriteAt(p.open, s.size); err != nil {
		return fmt.Errorf("order results: %w", err)
	}
	p.blocks = append(p.blocks, block{s.size, len(p.open)})
	s.size += int64(len(p.open))
	p.open = p.open[:0]
	return nil
}

// create makes the file, which ends with its descriptor.
func (s *sorter) create() error {
	var err error
	if s.file, err = os.CreateTemp(s.folder, "results-*.tmp"); err != nil { // mode 0600
		return err
	}
	return os.Remove(s.file.Name())
}

// drain returns the results to yield in the order of their ordinals.
func (s *sorter) drain(yield func(ledger.Result) error) error {
	places := make([]uint32, s.width) // of each ordinal's record, plus 1; 0: there is none
	var scratch []byte
	for i := range s.parts {
		text, err := s.read(&s.parts[i], &scratch)
		if err != nil {
			return fmt.Errorf("read ordered results: %w", err)
		}
		clear(places)
		for at := 0; at < len(text); {
			head := []byte(text[at : at+recordHead])
			places[binary.LittleEndian.Uint32(head)] = uint32(at) + 1
			at += recordHead + int(binary.LittleEndian.Uint16(head[4:]))
		}
		for place, at := range places {
			if at == 0 {
				continue
			}
			r := recordAt(text[at-1:])
			r.Ordinal = int64(i)*s.width + int64(place)
			if err := yield(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// recordAt reads the record that text begins with, but for its ordinal.
func recordAt(text string) ledger.Result {
	head := []byte(text[:recordHead])
	return ledger.Result{
		Email:   text[recordHead : recordHead+int(binary.LittleEndian.Uint16(head[4:]))],
		Outcome: smtp.Outcome(head[6]), Reason: smtp.Reason(head[7]),
		At: time.UnixMilli(int64(binary.LittleEndian.Uint64(head[8:]))).UTC(), Operator: flags.Operator(head[16]),
	}
}

// read returns all records of a part, by way of scratch.
func (s *sorter) read(p *part, scratch *[]byte) (string, error) {
	var text strings.Builder
	text.Grow(p.length)
	for _, b := range p.blocks {
		if cap(*scratch) < b.length {
			*scratch = make([]byte, b.length)
		}
		piece := (*scratch)[:b.length]
		if _, err := s.file.ReadAt(piece, b.at); err != nil {
			return "", err
		}
		text.Write(piece)
	}
	text.Write(p.open)
	return text.String(), nil
}

// close ends the sorter and what is in it.
func (s *sorter) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
