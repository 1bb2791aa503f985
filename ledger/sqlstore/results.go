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
)

// pageSettlements is the number of settlements in one query, so that a large file does not keep a session from other
// requests: with 1,000 outcomes in each it takes some 10 ms.
const pageSettlements = 64

// Results calls yield for each settled address in ordinal order. It reads all settlements that exist at the start
// before the first yield, so a slow yield holds no session and no more memory than a part of a sorter. Settled
// outcomes never change.
func (s files) Results(ctx context.Context, workspace, id uuid.UUID, yield func(ledger.Result) error) (err error) {
	v, err := s.withResults(ctx, workspace, id)
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

// fill adds all settlements of v to a sorter.
func (s files) fill(ctx context.Context, ordered *sorter, v *transitions.Row) error {
	if err := s.walk(ctx, v, ordered.add); err != nil {
		return err
	}
	return ordered.filled()
}

// walk calls take with each settlement of v, by number; the batch is valid until take returns.
func (s files) walk(ctx context.Context, v *transitions.Row, take func(b *ledger.Batch) error) error {
	var batch ledger.Batch
	number := int64(1) // of the next settlement
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
		// Settled outcomes never change, so an interrupted page continues where it stopped.
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
	// sorterParts bounds the parts of a sorter; each has a block of its own while the sorter is filled.
	sorterParts = 64
	// sorterMemory bounds all blocks: 16 KiB for each of 64 parts. Guess: large enough to make system calls rare,
	// small enough for many downloads.
	sorterMemory = 1 << 20
	// partOrdinals is the least number of ordinals of a part. A reader holds one part, some 42 bytes for each
	// ordinal. A file of 1,000,000 makes 62 parts.
	partOrdinals = 1 << 14
	// recordHead is the size of a record before the address: its ordinal within the part (4), length (2), outcome,
	// reason, time (8), and operator.
	recordHead = 17
)

// sorter sorts results by ordinal with memory that hardly grows with the file. Each result goes to its part, a range
// of ordinals. The parts go block by block to a file, and are then read one after the other. A small sorter stays in
// memory.
//
// The file is private (mode 0600) and has no name, so it ends with the process. A sorter is for one goroutine.
type sorter struct {
	folder string // of the file
	total  int64  // number of ordinals
	width  int64  // number of ordinals in a part
	parts  []part
	file   *os.File // nil: nothing was written yet
	size   int64    // of the file
}

// part is the results of a range of ordinals, in any order.
type part struct {
	open   []byte  // not yet in the file
	blocks []block // in the file
	length int     // bytes of both
}

// block is a piece of a part in the file.
type block struct {
	at     int64
	length int
}

// newSorter makes a sorter for total results; its file, if needed, is in folder.
func newSorter(folder string, total int64) *sorter {
	width := max(partOrdinals, (total+sorterParts-1)/sorterParts)
	return &sorter{folder: folder, total: total, width: width, parts: make([]part, (total+width-1)/width)}
}

// add adds the results of a settlement to their parts. ledger.ErrPayload for an ordinal outside of the file.
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

// filled ends the filling: if there is a file, everything goes to it, and the blocks' memory is freed.
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

// create makes the file, which has no name, so it ends with its descriptor.
func (s *sorter) create() error {
	var err error
	if s.file, err = os.CreateTemp(s.folder, "results-*.tmp"); err != nil { // mode 0600
		return err
	}
	return os.Remove(s.file.Name())
}

// drain calls yield with the results in the order of their ordinals.
func (s *sorter) drain(yield func(ledger.Result) error) error {
	places := make([]uint32, s.width) // position of each ordinal's record, plus 1; 0: there is none
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

// recordAt reads the record at the start of text, except its ordinal.
func recordAt(text string) ledger.Result {
	head := []byte(text[:recordHead])
	return ledger.Result{
		Email:   text[recordHead : recordHead+int(binary.LittleEndian.Uint16(head[4:]))],
		Outcome: smtp.Outcome(head[6]), Reason: smtp.Reason(head[7]),
		At: time.UnixMilli(int64(binary.LittleEndian.Uint64(head[8:]))).UTC(), Operator: smtp.Operator(head[16]),
	}
}

// read returns all records of a part, using scratch as a buffer.
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

func (s *sorter) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
