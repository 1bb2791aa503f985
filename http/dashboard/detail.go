package dashboard

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	httpd "rollcall/http"
	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

type detailView struct {
	Name            string
	Base            string // its path
	By              string // who made it; "": unknown
	Created         time.Time
	Live            template.HTML
	Cancel          bool
	Reasons         []smtp.Reason
	Outcomes        []smtp.Outcome
	Outcome, Reason string // none is chosen
	Single          bool   // the verification is a check of one address
}

// ofVerification makes the handler of a page about the verification in its path.
func ofVerification(show func(*Dashboard, http.ResponseWriter, *request, ledger.Verification) error) handler {
	return func(d *Dashboard, w http.ResponseWriter, r *request) error {
		v, err := d.o.Book.Verification(r.Context(), r.workspace(), r.id)
		switch {
		case errors.Is(err, ledger.ErrNoSuchVerification):
			return web.Nothing
		case err != nil:
			return at("read verification", err)
		}
		return show(d, w, r, v)
	}
}

func detail(d *Dashboard, w http.ResponseWriter, r *request, v ledger.Verification) error {
	live, _, err := d.liveViewOf(r, v)
	if err != nil {
		return at("read balance", err)
	}
	part, err := d.livePart(r, live, keyOf(live))
	by := namer{}
	if err == nil {
		by, err = makers(d.o.Book, r, v)
	}
	if err != nil {
		return at("read results and who made it", err)
	}
	show := detailView{By: by.of(v.MadeBy), Name: nameOf(v), Base: baseOf(r, v), Created: v.Created,
		Live: template.HTML(part.html("")), Cancel: live.Cancel, Outcomes: smtp.Outcomes[:], Reasons: smtp.Reasons(),
		Single: live.Single}
	f := web.Frame{Title: show.Name + " · Verifications", Here: "list", Live: !v.Status.Final()}
	if !show.Single {
		f.Scripts = []string{"join.js"}
	}
	return d.show(w, r, http.StatusOK, "detail", &frame{Body: show, Frame: f})
}

func baseOf(r *request, v ledger.Verification) string {
	return r.base() + "/verifications/" + v.ID.String()
}

// askCancel answers GET /w/{ws}/verifications/{id}/cancel. The page asks for confirmation, and says what is lost and
// what stays.
func askCancel(d *Dashboard, w http.ResponseWriter, r *request, v ledger.Verification) error {
	base, name := baseOf(r, v), nameOf(v)
	show := web.Confirm{Title: "Cancel " + name + "?", Up: name, Back: base, Action: base + "/cancel",
		Text: []string{"Addresses that aren't checked yet won't be, and their credits are released. This can't be undone.",
			"Existing results stay, and so does what they cost."}, Verb: "Cancel the verification", Stay: "Keep it running"}
	if v.Status.Final() {
		show.Done = "This verification is already over."
	}
	return d.show(w, r, http.StatusOK, "confirm", titled("Cancel "+name, "list", show))
}

// cancel answers POST /w/{ws}/verifications/{id}/cancel. A repeated cancel changes nothing: the ledger returns the
// present state.
func cancel(d *Dashboard, w http.ResponseWriter, r *request) error {
	v, err := d.o.Book.Cancel(r.Context(), r.workspace(), r.id)
	switch {
	case errors.Is(err, ledger.ErrNoSuchVerification):
		return web.Nothing
	case err != nil:
		return at("cancel", err)
	}
	d.o.Wake()
	return seeOther(w, r, baseOf(r, v))
}

// percent writes a part of a whole for an attribute of SVG.
func percent(part, whole int64) string {
	if whole <= 0 {
		return "0%"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 3, 64) + "%"
}

// errRead ends the reading of settlements after the requested one.
var errRead = errors.New("the settlement was read")

// talk finds an outcome, with its evidence, by its position in the file. It reads only the given settlement, and
// returns nil if the outcome is not in it.
func talk(ctx context.Context, book ledger.Book, v ledger.Verification, ordinal, settlement int64) (*web.Talk, error) {
	var found *web.Talk
	_, err := book.Evidence(ctx, v.ID, settlement-1, func(k ledger.StoredSettlement) error {
		for i := range k.Results.Len() {
			r := k.Results.Result(i)
			if r.Ordinal != ordinal {
				continue
			}
			found = web.TalkOf(r, nil, false)
			var err error
			if len(k.Evidence) > 0 {
				err = evidence.Unpack(k.Evidence, func(e evidence.Entry) error {
					if e.Ordinal == ordinal {
						found = web.TalkOf(r, &e.Case, false)
					}
					return nil
				})
			}
			said := new(smtp.FlagCache).Of(r.Email)
			said.Operator = r.Operator.String()
			found.Flags = said.Sentences()
			return errors.Join(err, errRead)
		}
		return errRead
	})
	if errors.Is(err, errRead) && !errors.Is(err, evidence.ErrPacked) {
		err = nil
	}
	return found, err
}

type addressView struct {
	Back, Name, Email string
	Talk              web.Talk
}

// showAddress answers GET /w/{ws}/verifications/{id}/addresses/{ordinal}. The query names the settlement, because a
// search would read the whole file. A check of one address has only one settlement.
func showAddress(d *Dashboard, w http.ResponseWriter, r *request, v ledger.Verification) error {
	ordinal, err := strconv.ParseInt(r.PathValue("ordinal"), 10, 64)
	settlement, _ := strconv.ParseInt(r.URL.Query().Get("in"), 10, 64)
	if v.Kind == ledger.Single {
		settlement = 1
	}
	if err != nil || ordinal < 0 || settlement < 1 {
		return web.Nothing
	}
	talk, err := talk(r.Context(), d.o.Book, v, ordinal, settlement)
	switch {
	case errors.Is(err, ledger.ErrResultsExpired):
		return failure{Status: http.StatusGone, Title: "The results are gone",
			Text: "Results and their evidence were deleted when their retention time ended.", Next: "The counts stay.",
			Link: baseOf(r, v), Label: "To the verification"}
	case err != nil:
		return at("read evidence", err)
	case talk == nil:
		return web.Nothing
	default:
		return d.show(w, r, http.StatusOK, "address", titled("One address · "+nameOf(v)+" · Verifications", "list",
			addressView{Back: baseOf(r, v), Name: nameOf(v), Email: talk.Email, Talk: *talk}))
	}
}

// results answers GET /w/{ws}/verifications/{id}/results.csv; package http sends the rows. Each download is noted in
// the workspace's log, for its owners.
func results(d *Dashboard, w http.ResponseWriter, r *request, v ledger.Verification) error {
	query := r.URL.Query()
	outcome, okOutcome := named(query.Get("outcome"), smtp.Outcomes[:])
	reason, okReason := named(query.Get("reason"), smtp.Reasons())
	use := query.Get("for")
	if !okOutcome || !okReason || use != "" && use != "program" {
		return failure{Status: http.StatusUnprocessableEntity, Title: "These results don't exist",
			Text: "The link asks for an outcome, a reason or a kind of file that does not exist.",
			Next: "Choose on the page of the verification."}
	}
	name, detail := shortName(strings.TrimSuffix(nameOf(v), ".csv"))+"-results", "all"
	for _, part := range []string{query.Get("outcome"), query.Get("reason")} {
		if part != "" {
			name, detail = name+"-"+part, strings.TrimPrefix(detail+" "+part, "all ")
		}
	}
	if r.Method == http.MethodGet {
		line := ledger.WorkspaceLine{Actor: "user:" + r.in.User.ID.String(), Action: "results downloaded",
			Subject: v.ID.String(), Detail: detail}
		if err := d.o.Book.LogWorkspace(r.Context(), r.workspace(), line); err != nil {
			return at("log the download", err)
		}
	}
	r.page.Do(httpd.Act{Operation: httpd.Download, Workspace: r.workspace(), User: r.in.User.ID, Verification: r.id.String(),
		Rows: httpd.Rows{Outcome: outcome, Reason: reason, Spreadsheet: use == ""}, Name: name + ".csv"})
	return nil
}

// savedMax bounds the file's name in the name of a download, in bytes. File systems allow names of 255 bytes, and
// some browsers save nothing under a longer name.
const savedMax = 160

// shortName shortens a name to leave room for a download's suffix.
func shortName(name string) string {
	if len(name) <= savedMax {
		return name
	}
	return strings.ToValidUTF8(name[:savedMax], "") + "…"
}

// named finds the outcome or reason with a word. For "" it returns the zero value, which means all.
func named[T fmt.Stringer](text string, all []T) (T, bool) {
	one, found := smtp.Named(all, text)
	return one, found || text == ""
}

// liveView is the part of a page that refreshes itself.
type liveView struct {
	V        ledger.Verification
	Base     string
	State    web.State
	Answer   string // how far the verification is, in a few words
	Outcomes []outcome
	Done     int64 // checked addresses, without cancelled ones
	Charged  int64
	Every    string // when to refresh; "" if the verification is final
	Cancel   bool
	Results  bool
	Go       string // link to continue an upload; "" if the role may not
	Anew     string // link to upload a corrected file; "" if the role may not
	Expected string // when the last address should be checked; "": not known, or past
	Missing  string // missing credits; "" unless the verification waits for them
	Say      string // text for screen readers when it changes
	Waits    []waitLine
	Talk     *web.Talk // evidence of a finished check of one address; nil: none
	Reasons  bool      // there is a summary of reasons
	Single   bool      // a check of one address, without facts about a file
	Again    string    // link to check another address; "" until this check is done, for files, or if the role may not
	Newest   *registerView
}

type livePart struct {
	body []byte // without its tag, the same for every browser
	tag  string // depends on the body and on moved credits, see creditsIn
}

// html returns the part for a browser. credits replaces the balance in the head of the browser's page; "" leaves it.
func (p livePart) html(credits string) string {
	if credits != "" {
		credits = ` data-credits="` + template.HTMLEscapeString(credits) + `"`
	}
	return web.WithTag(p.body, p.tag, credits)
}

// creditsIn returns the part of a tag that changes when the verification moves credits.
func creditsIn(tag string) string {
	_, credits, _ := strings.Cut(tag, ".")
	return credits
}

// live answers GET /w/{ws}/verifications/{id}/live: the part, or 304 if nothing has changed. It reads the workspace's
// balance only if the browser's tag shows that the verification has moved credits since the last request.
func live(d *Dashboard, w http.ResponseWriter, r *request, v ledger.Verification) error {
	show, money, err := d.liveViewOf(r, v)
	if err != nil {
		return at("read balance", err)
	}
	has, key := r.Header.Get("If-None-Match"), keyOf(show)
	if tag, known := d.tags.Get(key); known && tag == has {
		w.Header().Set("ETag", has)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	part, err := d.livePart(r, show, key)
	if err != nil {
		return at("read results", err)
	}
	w.Header().Set("ETag", part.tag)
	if has == part.tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if money == nil && has != "" && creditsIn(has) != creditsIn(part.tag) {
		balance, err := d.o.Book.Balance(r.Context(), r.workspace())
		if err != nil {
			return at("read balance", err)
		}
		money = &balance
	}
	credits := ""
	if money != nil {
		credits = web.Thin(money.Available)
	}
	web.WriteHTML(w, http.StatusOK, []byte(part.html(credits)))
	return nil
}

// livePart makes the part with the newest results, and notes its tag for further requests.
func (d *Dashboard) livePart(r *request, show liveView, key partKey) (made livePart, err error) {
	if !show.Single && show.V.Total > 0 && (show.Results || show.Every != "") {
		if show.Newest, err = newest(d.o.Book, r, show.V); err != nil {
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
		if show.Talk, err = talk(r.Context(), d.o.Book, v, 0, 1); err != nil && !errors.Is(err, ledger.ErrResultsExpired) {
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

// everyOf returns how often the part of a verification refreshes, or "" if the verification is final. The pages of
// one user don't slow down another's, because the server limits requests by user.
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

// keyOf returns a key made from every field that a template of the part can see.
func keyOf(show liveView) partKey {
	text, err := json.Marshal(show)
	if err != nil {
		panic(err) // all its fields have a JSON form
	}
	return sha256.Sum256(text)
}

// tagsMax bounds the stored tags, some 200 bytes each.
const tagsMax = 5000
