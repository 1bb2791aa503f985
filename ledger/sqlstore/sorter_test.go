package sqlstore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

// sorterResult is the result at an ordinal, with an address as long as asked for.
func sorterResult(ordinal int64, length int) ledger.Result {
	email := fmt.Sprintf("%d@example.test", ordinal)
	return ledger.Result{Ordinal: ordinal, Email: email + strings.Repeat("x", max(0, length-len(email))),
		Outcome: smtp.Outcomes[ordinal%int64(len(smtp.Outcomes))], Reason: smtp.Reason(1 + ordinal%9),
		At: time.UnixMilli(1_700_000_000_000 - ordinal).UTC()}
}

// batchOf returns results in the form in which a settlement stores them.
func batchOf(t *testing.T, results []ledger.Result) *ledger.Batch {
	t.Helper()
	p, err := ledger.EncodeResults(results)
	var batch ledger.Batch
	if err == nil {
		err = batch.Decode(p.Bytes)
	}
	effort.OK(t, err)
	return &batch
}

// fillSorter adds results in batches of 1,000, in the order given.
func fillSorter(t *testing.T, s *sorter, results []ledger.Result) {
	t.Helper()
	for batch := range slices.Chunk(results, 1000) {
		effort.OK(t, s.add(batchOf(t, batch)))
	}
	effort.OK(t, s.filled())
}

func TestSorterBringsResultsIntoOrder(t *testing.T) {
	for _, c := range []struct {
		name   string
		total  int64
		every  int64 // of which ordinal 0, every, 2*every... is there
		length int   // of an address
		file   bool  // whether it needs one
	}{
		{"one", 1, 1, 0, false},
		{"less than a part", partOrdinals - 1, 1, 0, false},
		{"a whole part", partOrdinals, 1, 0, false},
		{"one more", partOrdinals + 1, 1, 0, true},
		{"a part of the longest addresses", 4000, 1, ledger.EmailBytesMax, true},
		{"two parts and a bit", 2*partOrdinals + 5, 1, 40, true},
		{"with gaps", 5 * partOrdinals, 7, 0, false},
		{"with empty parts", 9 * partOrdinals, 4*partOrdinals + 1, 0, false},
		{"more ordinals than the least for each part", sorterParts*partOrdinals + 3, 11, 40, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want []ledger.Result
			for o := int64(0); o < c.total; o += c.every {
				want = append(want, sorterResult(o, c.length))
			}
			mixed := slices.Clone(want)
			rand.New(rand.NewPCG(1, 2)).Shuffle(len(mixed), func(i, k int) {
				mixed[i], mixed[k] = mixed[k], mixed[i]
			})
			folder := t.TempDir()
			s := newSorter(folder, c.total)
			defer func() { _ = s.close() }()
			fillSorter(t, s, mixed)
			effort.Is(t, s.file != nil, c.file, "it has a file")
			n := 0
			err := s.drain(func(r ledger.Result) error {
				if n >= len(want) || r != want[n] {
					return fmt.Errorf("result %d is %+v", n, r)
				}
				n++
				return nil
			})
			effort.ErrorIf(t, err != nil || n != len(want), "%d of %d results, %v", n, len(want), err)
			left := effort.Must(os.ReadDir(folder))(t)
			effort.Is(t, len(left), 0, "the folder has")
		})
	}
}

// TestSorterHoldsLittle: what is in memory stays below the bound however much is added.
func TestSorterHoldsLittle(t *testing.T) {
	const total = 40 * partOrdinals
	s := newSorter(t.TempDir(), total)
	defer func() { _ = s.close() }()
	held := func() (n int) {
		for i := range s.parts {
			n += len(s.parts[i].open)
		}
		return n
	}
	for first := int64(0); first < total/10; first += 4000 {
		var results []ledger.Result
		for o := first; o < min(first+4000, total/10); o++ {
			results = append(results, sorterResult(o*10, 100))
		}
		effort.OK(t, s.add(batchOf(t, results)))
		n := held()
		effort.FatalIf(t, n > sorterMemory, "holds %d bytes, at most %d wanted", n, sorterMemory)
	}
	effort.OK(t, s.filled())
	effort.Is(t, held(), 0, "filled, it holds bytes")
}

// TestSorterFileIsItsOwn: nobody else may read the file, which has no name.
func TestSorterFileIsItsOwn(t *testing.T) {
	s := newSorter(t.TempDir(), 4000)
	defer func() { _ = s.close() }()
	var results []ledger.Result
	for o := range int64(4000) {
		results = append(results, sorterResult(o, 600))
	}
	fillSorter(t, s, results)
	info, err := s.file.Stat()
	effort.ErrorIf(t, err != nil || info.Mode() != 0o600 || info.Size() < 4000*600, "the file: %+v, %v", info, err)
	effort.Denied(os.Lstat(s.file.Name()))(t, os.ErrNotExist, "its name stands")
}

func TestSorterRefusals(t *testing.T) {
	var long []ledger.Result
	for o := range int64(4000) {
		long = append(long, sorterResult(o, 1000))
	}
	for _, c := range []struct {
		name    string
		folder  string
		total   int64
		results []ledger.Result
		want    error
	}{
		{"an ordinal outside of the file", t.TempDir(), 5, []ledger.Result{sorterResult(5, 0)}, ledger.ErrPayload},
		{"no folder for the file", filepath.Join(t.TempDir(), "none"), 4000, long, os.ErrNotExist},
	} {
		effort.ErrIs(t, newSorter(c.folder, c.total).add(batchOf(t, c.results)), c.want, c.name)
	}
}
