package browser_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// numbers is script: what stands in elements as whole numbers.
const numbers = `((list) => [...list].map((e) => Number(e.innerText.replace(/[^0-9-]/g, ""))))`

// register gives the numbers of each row of the table with a caption, and those of its foot.
func (b *tab) register(caption string) (rows [][]int64, foot []int64) {
	b.t.Helper()
	table := `[...document.querySelectorAll("table")].find((t) => t.caption && t.caption.textContent.startsWith(` + quote(caption) + `))`
	rows = eval[[][]int64](b, `[...`+table+`.tBodies[0].rows].map((r) => `+numbers+`(r.querySelectorAll("td.n")))`)
	return rows, eval[[]int64](b, numbers+`(`+table+`.tFoot.querySelectorAll("td.n"))`)
}

// sums adds up columns.
func sums(rows [][]int64, columns int) []int64 {
	all := make([]int64, columns)
	for _, r := range rows {
		for i := range all {
			all[i] += r[i]
		}
	}
	return all
}

// equation reads granted, available, held and spent.
func (b *tab) equation() []int64 {
	b.t.Helper()
	return eval[[]int64](b, numbers+`(document.querySelectorAll(".equation .n"))`)
}

func TestCreditsAddUpOnTheScreen(t *testing.T) {
	t.Parallel()
	p := theNode(t).workspace(t, "acme", 1_000_000)
	if _, err := p.book.Grant(t.Context(), uuid.New(), p.id, 2_500, "a second grant"); err != nil {
		t.Fatal(err)
	}
	p.everyState()
	p.checked()
	v := p.verifying("half.csv", 100, results(37)...)
	if _, err := p.book.Cancel(t.Context(), p.id, v.ID); err != nil {
		t.Fatal(err)
	}
	b := newTab(t, p.node).as(p.join(ledger.Viewer))
	b.goTo(p.path + "/credits")
	e := b.equation()
	if len(e) != 4 || e[0] != 1_002_500 || e[1] == 0 || e[2] == 0 || e[3] == 0 || e[0] != e[1]+e[2]+e[3] {
		t.Fatalf("granted, available, held, spent are %v: they do not add up, or say nothing", e)
	}
	kept, err := p.book.Balance(t.Context(), p.id)
	if want := []int64{int64(kept.Granted), int64(kept.Available), int64(kept.Held), int64(kept.Spent)}; err != nil || !slices.Equal(e, want) {
		t.Errorf("the page has %v, the ledger %v, %v", e, want, err)
	}
	if head := eval[[]int64](b, numbers+`(document.querySelectorAll(".who .n"))`); !slices.Equal(head, e[1:2]) {
		t.Errorf("the head says that %v are available", head)
	}
	rows, foot := b.register("Credit movements")
	if got := sums(rows, 4); len(rows) != 7 || !slices.Equal(got, foot) {
		t.Errorf("%d rows add up to %v, the foot says %v", len(rows), got, foot)
	}
	// Everything is on the first page, so its sums are the equation: granted, held now, spent.
	if foot[0] != e[0] || foot[1]-foot[2]-foot[3] != e[2] || foot[2] != e[3] {
		t.Errorf("the sums %v are not the equation %v", foot, e)
	}
	b.press("Show as a table")
	rows, foot = b.register("Credits spent by day")
	if got := sums(rows, 1); len(rows) != 90 || !slices.Equal(got, foot) || foot[0] != e[3] {
		t.Errorf("%d days add up to %v, the foot says %v, spent are %d", len(rows), got, foot, e[3])
	}
}

func TestAVerificationAddsUpOnTheScreen(t *testing.T) {
	t.Parallel()
	p := theNode(t).workspace(t, "acme", 10_000)
	b := newTab(t, p.node).as(p.join(ledger.Viewer))
	for name, c := range map[string]struct{ total, final int64 }{"running": {900, 613}, "completed": {64, 64}} {
		v := p.verifying(name+".csv", c.total, results(int(c.final))...)
		b.goTo(p.of(v))
		rows, foot := b.register("Outcomes with what they cost")
		got := sums(rows, 2)
		if len(rows) != 5 || len(foot) < 3 || got[0] != foot[0] || foot[0] != c.final {
			t.Fatalf("%s: %d outcomes add up to %v, the foot says %v, %d are final", name, len(rows), got, foot, c.final)
		}
		credits := eval[[]int64](b, numbers+`(document.querySelectorAll("#live table tbody td:nth-of-type(3)"))`)
		var charged int64
		for _, n := range credits {
			charged += n
		}
		now, err := p.book.Store.Verification(t.Context(), p.id, v.ID)
		if err != nil || foot[2] != charged || charged != int64(now.Counts.Charged()) {
			t.Errorf("%s: %v credits add up to %d, the foot says %d, the ledger %d, %v", name, credits, charged, foot[2], now.Counts.Charged(), err)
		}
		if held := eval[int64](b, numbers+`([document.querySelector("#live table tfoot .soft")])[0]`); c.final < c.total && held != int64(now.Held) {
			t.Errorf("%s: %d credits are held on the page, %d in the ledger", name, held, now.Held)
		}
		done := eval[[]int64](b, numbers+`(document.querySelectorAll("#live .title .now > .n"))`)
		if !slices.Equal(done, []int64{c.final, c.total}) {
			t.Errorf("%s: the page says %v of all are final, want %d of %d", name, done, c.final, c.total)
		}
	}
}
