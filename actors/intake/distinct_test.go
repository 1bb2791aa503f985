package intake

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"rollcall/config/effort"
)

// 300,000 addresses among which some have the same 32 bits of hash (about ten
// pairs are to be expected) are told apart, and their duplicates are found.
func TestAddressesAreComparedByBytes(t *testing.T) {
	const addresses = 300_000
	var file bytes.Buffer
	for range 2 {
		for i := range addresses {
			fmt.Fprintf(&file, "u%d@d%d.test\n", i/7, i%7)
		}
	}
	f := effort.Must(Read(&file, Limits{RowsMax: 2 * addresses}))(t)
	effort.FatalIf(t, f.Len() != addresses || f.Duplicates() != addresses || len(f.Domains()) != 7,
		"%d addresses, %d duplicates, %d domains", f.Len(), f.Duplicates(), len(f.Domains()))
	for i := range addresses {
		want := fmt.Sprintf("u%d@d%d.test", i/7, i%7)
		if spelled(f, i) != want || f.Address(i).String() != want {
			t.Fatalf("ordinal %d is %s, %v, want %s", i, spelled(f, i), f.Address(i), want)
		}
	}
}

// Two domains of the same hash are as good as never met by chance, so the hash is set here.
func TestDomainsAreComparedBeyondTheirHash(t *testing.T) {
	d := newDistinct()
	for _, domain := range []string{"b.test", "c.test"} {
		spelling := d.learn([]byte(domain), domain)
		d.facts[spelling].hash = 7
		d.add([]byte("a"), spelling)
		d.add([]byte("a"), spelling)
	}
	d.flush()
	effort.ErrorIf(t, d.file.Len() != 2 || d.file.Rows() != 4 || d.file.Domain(1) != "c.test",
		"%d addresses in %d rows, want 2 in 4", d.file.Len(), d.file.Rows())
}

// Addresses whose two halves are the same, or that differ in one half only, do not meet in one place of the table.
func TestNobodyCanChooseHashes(t *testing.T) {
	const addresses = 20_000
	files := map[string]func(i int) string{
		"halves alike":   func(i int) string { return fmt.Sprintf("d%d@d%d", i, i) },
		"one local part": func(i int) string { return fmt.Sprintf("a@d%d", i) },
		"one domain":     func(i int) string { return fmt.Sprintf("d%d@a", i) },
		"halves exchanged": func(i int) string {
			return fmt.Sprintf("d%d@d%d", i/2+i%2*addresses, i/2+(1-i%2)*addresses)
		},
	}
	for name, row := range files {
		d := newDistinct()
		for i := range addresses {
			local, domain, _ := bytes.Cut([]byte(row(i)), []byte("@"))
			d.add(local, d.learn(domain, string(domain)))
		}
		d.flush()
		run, longest := 0, 0 // of slots that are taken
		for _, slot := range d.addresses.slots {
			if run++; slot == 0 {
				run = 0
			}
			longest = max(longest, run)
		}
		if d.file.Len() != addresses || longest > 500 { // 100 or so at this load
			t.Errorf("%s: %d addresses, %d slots taken in a row", name, d.file.Len(), longest)
		}
	}
}

func TestArenaGivesBackWhatWasPut(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for round := range 100 {
		var a arena
		var texts [][]byte
		var places []uint32
		count := 1 + random.IntN(5000)
		if round == 0 {
			count = 100_000 // 6 MB: some blocks of the largest size
		}
		for range count {
			text := bytes.Repeat([]byte{byte(random.Uint32())}, random.IntN(random.IntN(255)+1))
			texts, places = append(texts, text), append(places, a.put(text))
		}
		for i, text := range texts {
			if got := a.get(places[i]); got != string(text) {
				t.Fatalf("text %d at %d is %q, want %q", i, places[i], got, text)
			}
		}
		for i, block := range a.blocks {
			effort.FatalIf(t, block.Cap() != min(arenaFirst<<i, arenaBlock), "block %d has %d bytes", i, block.Cap())
		}
	}
}
