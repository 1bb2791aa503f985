package dashboard

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"rollcall/http/web"
	"rollcall/ledger"
)

// liveView is the part of a page that refreshes itself.
type liveView struct {
	V        ledger.Verification
	Base     string
	State    web.State
	Answer   string // how far it is, in a few words
	Outcomes []outcome
	Done     int64 // checked, without cancelled ones
	Charged  int64
	Every    string // when to refresh; "" when it is final
	Cancel   bool
	Results  bool
	Go       string // link to continue an upload; "" without the right
	Anew     string // link to upload a corrected file; "" without the right
	Expected string // when the last address is expected to be checked; "": it is not known or over
	Missing  string // missing credits; "" unless it waits for them
	Say      string // text for screen readers when it changes
	Waits    []waitLine
	Talk     *web.Talk // of the check of one address that is over; nil: none
	Reasons  bool      // there is a summary of reasons
	Single   bool      // a check of one address, without what concerns a file
	Again    string    // link to check the next address; "" while this one isn't done, for files, and without the right
	Newest   *registerView
}

// livePart is a rendered part.
type livePart struct {
	body []byte // the same for every browser, except its tag
	tag  string // of the body and of the credits moved by the verification, see creditsIn
}

// html is the part for a browser. credits replaces the balance in the head of its page; "" leaves it.
func (p livePart) html(credits string) string {
	if credits != "" {
		credits = ` data-credits="` + template.HTMLEscapeString(credits) + `"`
	}
	return web.WithTag(p.body, p.tag, credits)
}

// creditsIn is the part of a tag that changes when its verification moves credits.
func creditsIn(tag string) string {
	_, credits, _ := strings.Cut(tag, ".")
	return credits
}

// live answers GET /w/{ws}/verifications/{id}/live: the part, or 304 when nothing has changed. It reads the balance of
// the workspace only when, by the browser's tag, the verification has moved credits since the last request.
func (d *Dashboard) live(w http.ResponseWriter, r *request) {
	v, ok := d.find(w, r)
	if !ok {
		return
	}
	show, money, err := d.liveViewOf(r, v)
	if err != nil {
		d.unavailable(w, r.Request, "read balance", err)
		return
	}
	has, key := r.Header.Get("If-None-Match"), keyOf(show)
	if tag, known := d.tags.Get(key); known && tag == has {
		w.Header().Set("ETag", has)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	part, err := d.livePart(r, show, key)
	if err != nil {
		d.unavailable(w, r.Request, "read results", err)
		return
	}
	w.Header().Set("ETag", part.tag)
	if has == part.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if money == nil && has != "" && creditsIn(has) != creditsIn(part.tag) {
		balance, err := d.o.Book.Balance(r.Context(), r.workspace())
		if err != nil {
			d.unavailable(w, r.Request, "read balance", err)
			return
		}
		money = &balance
	}
	credits := ""
	if money != nil {
		credits = web.Thin(money.Available)
	}
	web.WriteHTML(w, http.StatusOK, []byte(part.html(credits)))
}

// livePart makes the part with the newest results, and notes its tag for further requests.
func (d *Dashboard) livePart(r *request, show liveView, key partKey) (made livePart, err error) {
	if !show.Single && show.V.Total > 0 && (show.Results || show.Every != "") {
		if show.Newest, err = d.newest(r, show.V); err != nil {
			return made, err
		}
	}
	made.body = d.Pages.Part("detail", "live", show)
	made.tag = web.TagOf(made.body, "."+strconv.FormatInt(show.V.Counts.Charged(), 36)+"."+strconv.FormatInt(int64(show.V.Held), 36))
	d.tags.Add(key, made.tag)
	return made, nil
}

// liveViewOf collects the content of the part. Only a file that waits for credits needs a second ledger call, for the
// balance; otherwise the balance is nil.
func (d *Dashboard) liveViewOf(r *request, v ledger.Verification) (show liveView, money *ledger.Balance, err error) {
	show = liveView{V: v, Base: baseOf(r, v), State: stateOf(v), Outcomes: outcomesOf(v), Charged: v.Counts.Charged(),
		Done: v.Counts.Sum() - v.Counts.Cancelled, Cancel: r.may(ledger.Member) && !v.Status.Final(),
		Single: v.Kind == ledger.Single, Answer: answerOf(v, d.now())}
	if show.Single {
		show.Answer = show.State.Word
	}
	show.Results = show.Done > 0
	show.Reasons = show.Results && v.Status.Final()
	show.Waits = d.waits(r.Context(), v)
	if v.Kind == ledger.Single && show.Results {
		if show.Talk, err = d.talk(r.Context(), v, 0, 1); err != nil && !errors.Is(err, ledger.ErrResultsExpired) {
			return show, nil, err
		}
	}
	if show.Single && v.Status.Final() && r.may(ledger.Member) {
		show.Again = r.base() + "/check"
	}
	show.Every = everyOf(v)
	if !v.Expected.IsZero() && !v.Status.Final() {
		show.Expected = web.Soon(v.Expected, d.now())
	}
	if v.Status == ledger.Failed && !show.Single && r.may(ledger.Member) {
		show.Anew = r.base() + "/upload"
	}
	if v.Status == ledger.Uploading && r.may(ledger.Member) {
		show.Go = r.base() + "/upload"
	}
	if v.State() == ledger.WaitingCredits {
		balance, err := d.o.Book.Balance(r.Context(), r.workspace())
		if err != nil {
			return show, nil, err
		}
		money = &balance
		show.Missing = "It needs " + web.Plural(v.Total, "credit") + "; available: " + web.Thin(balance.Available) + "."
	}
	show.Say = show.State.Word
	switch {
	case show.Talk != nil:
		show.Say += ", " + web.OutcomeWord(show.Talk.Outcome)
	case v.Total > 0 && !show.Single:
		show.Say += ", " + web.Thin(show.Done) + " of " + web.Thin(v.Total) + " checked"
	}
	return show, money, nil
}

// everyOf returns how often the part of a verification refreshes; "" when it is final. One user's pages don't slow down
// another's: the server limits requests by user.
func everyOf(v ledger.Verification) string {
	switch {
	case v.Status.Final():
		return ""
	case v.Kind == ledger.Single:
		return "1s"
	case v.State() == ledger.WaitingReceivers:
		return "10s"
	case v.State() == ledger.WaitingCredits:
		return "5s"
	}
	return "2s"
}

// partKey identifies the content of a part.
type partKey [sha256.Size]byte

// keyOf is made from every field that a template of the part can see.
func keyOf(show liveView) partKey {
	text, err := json.Marshal(show)
	if err != nil {
		panic(err) // all its fields have a JSON form
	}
	return sha256.Sum256(text)
}

// tagsMax bounds the tags that are kept: some 200 bytes each.
const tagsMax = 5000
