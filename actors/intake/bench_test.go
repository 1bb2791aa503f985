package intake

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"net/mail"
	"runtime"
	"slices"
	"testing"
	"time"
)

// realisticFile has a million rows as a customer's list has them, 33 MB: half of
// them at a few large domains, the rest over 50,000 domains of which some are
// frequent and most are rare, and one row in fifty a duplicate.
func realisticFile() []byte {
	random := rand.New(rand.NewPCG(20, 26))
	first := []string{"anna", "john", "maria", "peter", "li", "fatima", "alex", "jo", "christina", "mohammed"}
	last := []string{"smith", "meyer", "diaz", "chen", "ivanova", "o-brien", "van.dijk", "ross", "lee", "kim"}
	large := []string{"mailhouse.example", "post.example", "inbox-online.example", "web-mail.example.org"}
	rare := rand.NewZipf(random, 1.1, 8, 49_999)
	local := func() string {
		return fmt.Sprintf("%s.%s%d", first[random.IntN(10)], last[random.IntN(10)], random.IntN(1_000_000))
	}
	domain := func() string {
		if random.IntN(2) == 0 {
			return large[random.IntN(len(large))]
		}
		return fmt.Sprintf("company-%d.example.net", rare.Uint64())
	}
	file := []byte("email\n")
	var rows [][]byte
	for range 1_000_000 {
		start := len(file)
		if len(rows) > 0 && random.IntN(50) == 0 {
			file = append(file, rows[random.IntN(len(rows))]...)
		} else {
			file = fmt.Appendf(file, "%s@%s\n", local(), domain())
		}
		if random.IntN(20) == 0 {
			rows = append(rows, slices.Clone(file[start:]))
		}
	}
	return file
}

// standard is what one would write with the standard library.
func standard(r io.Reader) (distinct int, err error) {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	seen := make(map[string]struct{})
	for row := 1; ; row++ {
		record, err := in.Read()
		if err == io.EOF {
			return len(seen), nil
		}
		if err != nil {
			return 0, err
		}
		address, err := mail.ParseAddress(record[0])
		if err != nil && row == 1 {
			continue
		}
		if err != nil {
			return 0, err
		}
		seen[address.Address] = struct{}{}
	}
}

func own(r io.Reader) (distinct int, err error) {
	f, err := Read(r, Limits{RowsMax: 1_000_000})
	if err != nil {
		return 0, err
	}
	return f.Len(), nil
}

// BenchmarkMillion reads a million addresses with Read and with the standard
// library in turn, and reports how many times faster Read is (of the medians),
// and the most heap that each had in use beside the file. Use -benchtime 7x.
func BenchmarkMillion(b *testing.B) {
	file := realisticFile()
	var times [2][]time.Duration
	readers := [2]func(io.Reader) (int, error){own, standard}
	for b.Loop() {
		var counts [2]int
		for i, read := range readers {
			runtime.GC()
			start := time.Now()
			n, err := read(bytes.NewReader(file))
			times[i] = append(times[i], time.Since(start))
			if err != nil {
				b.Fatal(err)
			}
			counts[i] = n
		}
		if counts[0] != counts[1] {
			b.Fatalf("%d distinct addresses, the standard library finds %d", counts[0], counts[1])
		}
	}
	median := func(d []time.Duration) float64 { slices.Sort(d); return d[len(d)/2].Seconds() }
	mine, theirs := median(times[0]), median(times[1])
	b.ReportMetric(theirs/mine, "times-faster")
	b.ReportMetric(1/mine, "Mrows/s")
	b.ReportMetric(1/theirs, "std-Mrows/s")
	b.ReportMetric(peak(b, own, file), "peak-MB")
	b.ReportMetric(peak(b, standard, file), "std-peak-MB")
	b.ReportMetric(kept(b, file), "kept-MB")
	b.ReportMetric(0, "ns/op")
}

// peak gives the most heap in use while read reads the file, less what was in
// use before, looked at each 256 KiB of the file.
func peak(b *testing.B, read func(io.Reader) (int, error), file []byte) float64 {
	before := heap(true)
	watch := &watcher{Reader: bytes.NewReader(file)}
	if _, err := read(watch); err != nil {
		b.Fatal(err)
	}
	most := max(watch.most, heap(false))
	runtime.KeepAlive(file)
	return most - before
}

// kept gives the heap that a File takes.
func kept(b *testing.B, file []byte) float64 {
	before := heap(true)
	f, err := Read(bytes.NewReader(file), Limits{RowsMax: 1_000_000})
	if err != nil {
		b.Fatal(err)
	}
	after := heap(true)
	runtime.KeepAlive(f)
	runtime.KeepAlive(file)
	return after - before
}

// heap gives the heap in use in MB, after a collection if asked for.
func heap(collect bool) float64 {
	if collect {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse) / 1e6
}

type watcher struct {
	io.Reader
	bytes int
	most  float64
}

func (w *watcher) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if w.bytes += n; w.bytes > 256<<10 {
		w.bytes = 0
		w.most = max(w.most, heap(false))
	}
	return n, err
}

// BenchmarkRead reads a million addresses that are nearly all at domains that
// came before, the same in quotes, and a hundred thousand that are all at a new
// domain.
func BenchmarkRead(b *testing.B) {
	var fresh []byte
	for i := range 100_000 {
		fresh = fmt.Appendf(fresh, "user@d%d.example.test\n", i)
	}
	plain := realisticFile()
	quoted := append([]byte(`"`), bytes.ReplaceAll(plain, []byte("\n"), []byte("\"\r\n\""))...)
	quoted = quoted[:len(quoted)-1]
	files := map[string][]byte{"realistic": plain, "quoted": quoted, "all domains new": fresh}
	for name, file := range files {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(file)))
			for b.Loop() {
				if _, err := own(bytes.NewReader(file)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
