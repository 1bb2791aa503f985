package pagetest_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
)

// list writes a file of about size bytes with distinct addresses. Another mark gives another file of the same size.
func list(t *testing.T, name string, size int, mark string) (path string, content []byte) {
	t.Helper()
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "person-%s-%08d@acme-clean.test\n", mark, i)
	}
	path = filepath.Join(t.TempDir(), name)
	effort.OK(t, os.WriteFile(path, b.Bytes(), 0o600))
	return path, b.Bytes()
}

// choose picks a file on the page to upload.
func (b *tab) choose(path string) {
	b.t.Helper()
	b.do(chromedp.SetUploadFiles(chromedp.ID("file"), []string{path}))
}

// newest returns the newest verification.
func (p *place) newest() ledger.Verification {
	p.t.Helper()
	var found []ledger.Verification
	if !eventually(func() bool {
		var err error
		found, err = p.book.History(p.t.Context(), ledger.HistoryQuery{Workspace: p.id, Limit: 1})
		return err == nil && len(found) == 1
	}) {
		p.t.Fatal("no verification was made")
	}
	return found[0]
}

// durable returns how many bytes of an upload are stored.
func (p *place) durable(id uuid.UUID) int64 {
	v := effort.Must(p.book.Verification(p.t.Context(), p.id, id))(p.t)
	return v.Durable
}

// barWatch records every value of the bar on a page, including values between two checks of a test.
const barWatch = `(() => { const bar = document.getElementById("bar"); window.__bars = [];
	new MutationObserver(() => window.__bars.push(bar.value)).observe(bar, { attributes: true, attributeFilter: ["value"] }); return true; })()`

// follow waits until so returns true. All the time it compares the bar with the stored bytes, which are read
// afterwards and never decrease, and with the bar's earlier values: on a page with barWatch the bar never goes back.
// It returns how many values the bar had.
func (b *tab) follow(p *place, id uuid.UUID, so func() bool) (values int) {
	b.t.Helper()
	seen := map[int64]bool{}
	if !eventually(func() bool {
		bars, ok := tried[[]int64](b, "document.getElementById('bar') ? [...window.__bars || [], document.getElementById('bar').value] : []")
		if ok && len(bars) > 0 && bars[len(bars)-1] > 1 {
			bar := bars[len(bars)-1]
			stored := p.durable(id)
			effort.ErrorIf(b.t, bar > stored, "the bar shows %d bytes, %d are stored", bar, stored)
			effort.FatalIf(b.t, !slices.IsSorted(bars), "the bar went back: %v", bars)
			seen[bar] = true
		}
		return so()
	}) {
		b.t.Fatalf("the upload did not come so far: %.600s", b.text())
	}
	return len(seen)
}

// stored checks that the ledger has exactly this content.
func (p *place) stored(id uuid.UUID, content []byte) {
	p.t.Helper()
	r := effort.Must(p.book.OpenFile(p.t.Context(), id))(p.t)
	defer r.Close()
	got, err := io.ReadAll(r)
	effort.ErrorIf(p.t, err != nil || !bytes.Equal(got, content),
		"%d bytes are stored that are not the %d of the file, %v", len(got), len(content), err)
}

func TestAnUploadThatIsCutAndReloaded(t *testing.T) {
	t.Parallel()
	n := ownNode(t)
	p := n.workspace(t, "acme", 1_000_000)
	b := newTab(t, n).as(p.join(ledger.Member))
	b.bear("net::ERR_", "Failed to fetch", "NetworkError", "htmx:error") // the network is cut
	size := 6_000_000
	if effort.Long() {
		size = 30_000_000
	}
	path, content := list(t, "big.csv", size, "a")
	other, _ := list(t, "big.csv", size, "b")
	n.storage.slow(4 * time.Millisecond)
	b.goTo(p.path)
	b.press("Upload a CSV")
	b.shows("At most 67.1 MB")
	eval[bool](b, barWatch)
	b.choose(path)
	b.shows("It needs at most")
	n.storage.cutAfter(int64(size / 6))
	b.press("Upload and check")
	id := p.newest().ID

	// Three cuts on the way: the upload continues by itself from the last stored byte.
	values, before := 0, int64(0)
	for cut := 1; cut <= 3; cut++ {
		values += b.follow(p, id, func() bool { return n.storage.wasCut() == cut })
		values += b.follow(p, id, func() bool { return p.durable(id) > before })
		before = p.durable(id)
		if cut < 3 {
			n.storage.cutAfter(int64(size / 6))
		}
	}

	// The storage is away and the page is loaded again. Another file of the same size is refused; the upload
	// continues with the right file.
	n.storage.Cut(true)
	b.shows("from the last stored byte on.")
	b.do(chromedp.Reload())
	b.shows("big.csv (" + fmt.Sprintf("%.1f", float64(len(content))/1e6) + " MB) is not whole yet.")
	if kept := eval[string](b, "JSON.stringify(localStorage)"); bytes.Contains([]byte(kept), []byte("/upload/")) || bytes.Contains([]byte(kept), []byte("@")) {
		t.Errorf("the browser remembers more than it may: %s", kept)
	}
	n.storage.Cut(false)
	n.storage.slow(time.Millisecond)
	b.choose(other)
	b.shows("It needs at most")
	b.press("Continue the upload")
	b.shows("This is another file, or it was changed.")
	now := p.durable(id)
	effort.FatalIf(t, now >= int64(len(content)), "%d bytes are stored after another file was chosen", now)
	b.choose(path)
	b.shows("It needs at most")
	eval[bool](b, barWatch)
	b.press("Continue the upload")
	values += b.follow(p, id, func() bool { return b.at() == p.of(ledger.Verification{ID: id}) })
	b.shows("The file has arrived.")
	p.stored(id, content)
	effort.Is(t, p.newest().ID, id, "the reload made a second verification")
	effort.ErrorIf(t, values < 2, "the bar was seen at only %d places: it tells nothing", values)
	t.Logf("%d bytes, 3 cuts, one reload; the bar was seen at %d places", len(content), values)
}

func TestAnUploadIsCancelled(t *testing.T) {
	t.Parallel()
	n := ownNode(t)
	p := n.workspace(t, "acme", 1_000_000)
	b := newTab(t, n).as(p.join(ledger.Member))
	path, _ := list(t, "big.csv", 3_000_000, "a")
	n.storage.slow(20 * time.Millisecond)
	b.goTo(p.path + "/upload")
	b.choose(path)
	b.shows("It needs at most")
	b.press("Upload and check")
	id := p.newest().ID
	b.follow(p, id, func() bool { return p.durable(id) > 0 })
	b.press("Cancel…")
	b.shows("What was sent is erased. Nothing is charged.")
	b.press("Keep uploading")
	b.until("!document.getElementById('sure').open")
	b.press("Cancel…")
	b.press("Cancel the upload")
	b.shows("It was cancelled before any address was checked")
	v := effort.Must(p.book.Verification(t.Context(), p.id, id))(t)
	effort.Is(t, v.Status, ledger.Cancelled, "the verification is")
	b.goTo(p.path + "/upload")
	effort.ErrorIf(t, !eval[bool](b, "document.getElementById('unfinished').hidden && localStorage.length === 0"),
		"the page wants to go on with an upload that was cancelled")
}

// drag sends the page an event of dragging files. The files have these names and one row each.
func (b *tab) drag(event string, files ...string) {
	b.t.Helper()
	eval[bool](b, `(() => {
		const data = new DataTransfer();
		for (const name of `+quote(strings.Join(files, " "))+`.split(" ")) data.items.add(new File(["anna@acme-clean.test\n"], name, { type: "text/csv" }));
		document.querySelector("h1").dispatchEvent(new DragEvent(`+quote(event)+`, { bubbles: true, cancelable: true, dataTransfer: data }));
		return true;
	})()`)
}

// visible returns an expression that is true if an element is visible.
func visible(id string) string { return "document.getElementById(" + quote(id) + ").checkVisibility()" }

func TestAFileIsDroppedOnTheList(t *testing.T) {
	t.Parallel()
	p := theNode(t).workspace(t, "acme", 1000)
	b := newTab(t, p.node).as(p.join(ledger.Member))
	b.goTo(p.path)
	b.shows("You can also drop a CSV anywhere on this page.")
	b.window(320, 900) // in this window the page has no text about it
	effort.ErrorIf(t, eval[bool](b, visible("upload")+" || "+visible("dropping")),
		"the part that uploads is seen before anything is dropped")
	b.drag("dragover", "contacts.csv")
	b.shows("Drop the CSV here to upload it.")
	b.drag("dragleave", "contacts.csv")
	b.until("!" + visible("dropping"))
	b.drag("dragover", "contacts.csv")
	b.drag("drop", "contacts.csv", "others.csv")
	b.shows("Drop one file at a time.")
	b.until("!" + visible("dropping") + " && document.activeElement.id === 'file'")
	b.drag("drop", "contacts.csv")
	b.shows("It needs at most 1 credit; 1 000 are available.")
	effort.ErrorIf(t, !eval[bool](b, "document.documentElement.scrollWidth <= innerWidth"),
		"the part that uploads is wider than the window")
	b.press("Upload and check")
	b.shows("The file has arrived. We're checking that it's in order. Then its addresses are checked.")
	v := p.newest()
	effort.Is(t, b.at(), p.of(v), "the upload")
	effort.Is(t, v.Filename, "contacts.csv", "the upload")
	p.stored(v.ID, []byte("anna@acme-clean.test\n"))
	effort.Is(t, eval[int](b, "localStorage.length"), 0, "things are remembered of an upload that is whole")
}
