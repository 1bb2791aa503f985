package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/http/web"
	"rollcall/ledger"
)

const (
	// listRows is how many verifications a page of the list has.
	listRows = 50

	// listRead is how many verifications one read gets. listReads is how many reads one page may make, because a
	// filter by state may skip many.
	listRead  = 100
	listReads = 10
)

type listView struct {
	Rows    []rowView
	Kinds   []choice
	States  []choice
	Pager   web.Pager
	Answer  string     // how much isn't done
	Looked  bool       // more matches may be further back
	Empty   bool       // the workspace has no verification
	Upload  string     // a link; "" if the role may not upload
	Panel   *panelView // uploads a file dropped on the page; nil if the role may not
	Check   string     // path of the form that checks one address; "" if the role may not
	Form    string     // the id of that form
	Curl    string
	Filters bool
	Missing string // credits needed by waiting files; "": none waits
	Example string // a link to a file to try
}

type choice struct {
	Word, Link string
	Chosen     bool
}

type rowView struct {
	Name     string
	Link     string
	State    web.State
	Progress string
	Problem  string // why a file was refused
	Outcomes []outcome
	Created  time.Time
	By       string
}

// states are the filters by state; "" is any.
var states = []struct {
	key, word string
	fits      func(ledger.Status) bool
}{
	{"", "any state", func(ledger.Status) bool { return true }},
	{"open", "unfinished", func(s ledger.Status) bool { return !s.Final() }},
	{"completed", "completed", func(s ledger.Status) bool { return s == ledger.Completed || s == ledger.CompletedWithErrors }},
	{"cancelled", "cancelled", func(s ledger.Status) bool { return s == ledger.Cancelled }},
	{"failed", "failed", func(s ledger.Status) bool { return s == ledger.Failed }},
}

// missing returns how many credits waiting verifications need. If none waits, it returns "" without a ledger call.
func missing(book ledger.Book, r *request, found []ledger.Verification) (string, error) {
	waiting, needed := 0, int64(0)
	for _, v := range found {
		if v.State() == ledger.WaitingCredits {
			waiting++
			needed += v.Total
		}
	}
	if waiting == 0 {
		return "", nil
	}
	balance, err := book.Balance(r.Context(), r.workspace())
	if err != nil {
		return "", err
	}
	amounts := web.Plural(needed, "credit") + "; available: " + web.Thin(balance.Available) + "."
	if waiting > 1 {
		return web.Plural(waiting, "verification") + " are waiting for credits. They need " + amounts +
			" They continue by themselves once there are enough.", nil
	}
	return "A verification is waiting for credits. It needs " + amounts + " It continues by itself once there are enough.", nil
}

func unfinished(list []ledger.Verification) string {
	open := 0
	for _, v := range list {
		if !v.Status.Final() {
			open++
		}
	}
	switch {
	case len(list) == 0:
		return "Nothing here yet"
	case open == 0:
		return "Everything is done"
	}
	return web.Thin(open) + " of " + web.Thin(len(list)) + " unfinished"
}

// curlOf returns a curl command that uploads a file.
func curlOf(api string) string {
	return "export API=" + api + ` ROLLCALL_KEY=…
curl -X POST "$API/v1/verifications" -H "X-API-Key: $ROLLCALL_KEY" \
  -H "Idempotency-Key: $(uuidgen)" -H "X-Upload-Content-Length: $(wc -c < contacts.csv)" \
  -H "X-Upload-Filename: contacts.csv"
curl -X PUT -H "Content-Type: text/csv" --data-binary @contacts.csv "the upload.url of the answer"`
}

// exampleFile is a file to try. Its domains are reserved (RFC 2606).
const exampleFile = "email\nanna@example.com\nben@example.org\ninfo@example.net\n"

func example(_ *Dashboard, w http.ResponseWriter, _ *request) error {
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="example.csv"`)
	_, _ = w.Write([]byte(exampleFile))
	return nil
}

func list(d *Dashboard, w http.ResponseWriter, r *request) error {
	query := r.URL.Query()
	kind, state := ledger.Kind(query.Get("kind")), query.Get("state")
	fits := states[0].fits
	for _, s := range states {
		if s.key == state {
			fits = s.fits
		}
	}
	after, ok := openCursor(query.Get("after"))
	if kind != "" && kind != ledger.Bulk && kind != ledger.Single || !ok {
		return web.Nothing
	}
	q := ledger.HistoryQuery{Workspace: r.workspace(), Kind: kind, After: after, Limit: listRead}
	found, last, more, err := search(r.Context(), d.o.Book, q, fits)
	if err != nil {
		return at("read history", err)
	}
	base := r.base()
	v := listView{Answer: unfinished(found), Curl: curlOf(d.o.PublicURL()), Filters: kind != "" || state != ""}
	by, err := makers(d.o.Book, r, found...)
	if err != nil {
		return at("read who made verifications", err)
	}
	for _, one := range found {
		row := rowOf(base, one)
		row.By = by.of(one.MadeBy)
		v.Rows = append(v.Rows, row)
	}
	if v.Missing, err = missing(d.o.Book, r, found); err != nil {
		return at("read balance", err)
	}
	v.Example = base + "/example.csv"
	v.Empty = len(found) == 0 && after == nil && !v.Filters
	v.Looked = more && len(found) < listRows
	if more {
		v.Pager.More = listLink(base, string(kind), state, sealCursor(last))
	}
	if after != nil {
		v.Pager.First = listLink(base, string(kind), state, "")
	}
	var scripts []string
	if r.may(ledger.Member) {
		panel := d.panel(r, true)
		v.Upload, v.Panel, scripts = base+"/upload", &panel, uploadScripts
		v.Check, v.Form = base+"/check", uuid.NewString()
	}
	for _, k := range []struct{ key, word string }{{"", "all"}, {"bulk", "bulk"}, {"single", "single"}} {
		v.Kinds = append(v.Kinds, choice{Word: k.word, Link: listLink(base, k.key, state, ""), Chosen: k.key == string(kind)})
	}
	for _, s := range states {
		v.States = append(v.States, choice{Word: s.word, Link: listLink(base, string(kind), s.key, ""), Chosen: s.key == state})
	}
	f := titled("Verifications", "list", v)
	f.Scripts = scripts
	return d.show(w, r, http.StatusOK, "list", f)
}

// search reads the history until a page is full, the history ends, or it has read listReads times. more reports
// whether there may be matches older than last.
func search(ctx context.Context, book ledger.Book, q ledger.HistoryQuery, fits func(ledger.Status) bool) (
	found []ledger.Verification, last ledger.Position, more bool, err error) {
	for range listReads {
		read, err := book.History(ctx, q)
		if err != nil {
			return nil, last, false, err
		}
		for i, v := range read {
			last = ledger.Position{Created: v.Created, ID: v.ID}
			if fits(v.Status) {
				found = append(found, v)
			}
			if len(found) == listRows {
				return found, last, i+1 < len(read) || len(read) == q.Limit, nil
			}
		}
		if len(read) < q.Limit {
			return found, last, false, nil
		}
		q.After = new(last)
	}
	return found, last, true, nil
}

// listLink returns a link to the list, with the filters that are not empty.
func listLink(base, kind, state, after string) string {
	q := url.Values{}
	for name, value := range map[string]string{"kind": kind, "state": state, "after": after} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if len(q) == 0 {
		return base
	}
	return base + "?" + q.Encode()
}

// sealCursor writes a position in the list for a link. The position is no secret: every request checks the workspace.
func sealCursor(p ledger.Position) string {
	return strconv.FormatInt(p.Created.UnixNano(), 36) + "." + p.ID.String()
}

// openCursor reads a cursor. For "" it returns none.
func openCursor(text string) (*ledger.Position, bool) {
	if text == "" {
		return nil, true
	}
	at, id, _ := strings.Cut(text, ".")
	nanos, err := strconv.ParseInt(at, 36, 64)
	if err != nil {
		return nil, false
	}
	parsed, ok := web.ID(id)
	return &ledger.Position{Created: time.Unix(0, nanos), ID: parsed}, ok
}

func rowOf(base string, v ledger.Verification) rowView {
	row := rowView{Name: nameOf(v), Link: base + "/verifications/" + v.ID.String(), State: stateOf(v), Created: v.Created,
		Outcomes: slices.DeleteFunc(outcomesOf(v), func(o outcome) bool { return o.Count == 0 })}
	switch {
	case v.Status == ledger.Uploading:
		row.Progress = web.Size(v.Durable) + " of " + web.Size(v.Bytes)
	case v.Status == ledger.Failed && v.Issue != nil:
		row.Problem = failureText(v.Issue)
	case v.Total >= 0:
		row.Progress = web.Thin(v.Counts.Sum()-v.Counts.Cancelled) + " of " + web.Thin(v.Total)
	}
	return row
}

func nameOf(v ledger.Verification) string {
	switch {
	case v.Filename != "":
		return v.Filename
	case v.SingleEmail != "":
		return v.SingleEmail
	case v.ID == uuid.Nil:
		return "verification"
	}
	return "verification " + v.ID.String()[:8]
}

// pageRows is how many rows a page of keys or of people has. Guess: such a page stays below half its bound.
const pageRows = 200

// pageOf returns the range of rows on the requested page of a list. A page after the last one becomes the last one,
// because rows may have vanished since the link was made. It returns false for an invalid page.
func pageOf(r *request, base string, rows int) (from, to int, p web.Pager, ok bool) {
	page := 1
	if text := r.URL.Query().Get("page"); text != "" {
		var err error
		if page, err = strconv.Atoi(text); err != nil || page < 1 {
			return 0, 0, p, false
		}
	}
	last := max(1, (rows+pageRows-1)/pageRows)
	page = min(page, last)
	if page > 1 {
		p.First = base
	}
	if page < last {
		p.More = base + "?page=" + strconv.Itoa(page+1)
	}
	return (page - 1) * pageRows, min(page*pageRows, rows), p, true
}

// between returns the items of a list that are in a range.
func between[T any](list []T, from, to int) []T {
	return list[min(max(from, 0), len(list)):min(max(to, 0), len(list))]
}
