package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
)

// scoreReport is how well the addresses of lists were judged, and how their receivers were treated.
type scoreReport struct {
	Addresses  int
	Domains    int
	Knowable   int // addresses that a careful engine can decide
	Found      int // of these: the right outcome
	Reasoned   int // of these: with a right reason
	Unfinished int // still waited for their receivers' limits when the time was up, and count in nothing else
	Replayed   int // addresses whose stored evidence was judged again
	Changed    int // of these: with another result; must be 0
	Sessions   int
	Rcpts      int
	TooEarly   int            // greylisted, asked before the stated time
	Wrong      map[string]int // false statements; must be none
	Missed     map[string]int // what was said instead of what can be known
	Rude       map[string]int // guards that were tripped, and bad manners; must be none
}

// newScoreReport counts the results of lists.
func newScoreReport(parts []part) scoreReport {
	r := scoreReport{Wrong: map[string]int{}, Missed: map[string]int{}, Rude: map[string]int{}}
	domains := map[string]bool{}
	for _, part := range parts {
		r.Addresses += len(part.all)
		r.Replayed += int(part.again.Replayed)
		r.Changed += int(part.again.Outcomes + part.again.Reasons)
		t := part.sheet.Total
		r.Sessions, r.Rcpts, r.TooEarly = r.Sessions+t.Sessions, r.Rcpts+t.Rcpts, r.TooEarly+t.TooEarly
		rude := map[string]int{"DATA": t.Data, "out of order": t.OutOfOrder, "sent ahead": t.UnaskedGroups,
			"before the greeting": t.EarlyTalk}
		maps.Copy(rude, part.sheet.Tripped)
		for what, n := range rude {
			if n > 0 {
				r.Rude[what] += n
			}
		}
		for _, j := range part.all {
			domains[j.address[strings.LastIndexByte(j.address, '@')+1:]] = true
			r.count(j)
		}
	}
	r.Domains = len(domains)
	return r
}

// count adds one address.
func (r *scoreReport) count(j judged) {
	if j.outcome == smtp.Undecided {
		r.Unfinished++
		return
	}
	said := fmt.Sprintf("%s: %s %s, right is %s", cmp.Or(j.personality, j.address), j.outcome, j.reason, j.want.Outcome)
	if j.want.Wrong(j.outcome) {
		r.Wrong[said]++
	}
	if !j.want.Knowable {
		return
	}
	r.Knowable++
	if j.outcome != j.want.Outcome {
		r.Missed[said]++
		return
	}
	r.Found++
	if j.want.Right(j.outcome, j.reason) {
		r.Reasoned++
	}
}

// compared counts the outcomes that a sample got as a lab knows them.
func compared(lab *smtplab.Lab, sample []string, got func(address string) (smtp.Outcome, smtp.Reason)) scoreReport {
	all := make([]judged, len(sample))
	for i, address := range sample {
		all[i].address, all[i].want = address, lab.Truth(address)
		all[i].outcome, all[i].reason = got(address)
	}
	return newScoreReport([]part{{all: all}})
}

// good reports whether the run keeps every promise.
func (r *scoreReport) good() bool { return len(r.Wrong) == 0 && r.Changed == 0 && len(r.Rude) == 0 }

// A whole run of a small list: all that can be known is known, nothing is wrong, and
// the kept evidence gives each outcome and reason again.
func TestLabScoreOfHonestReceivers(t *testing.T) {
	effort.NotShort(t, "runs a node for twenty seconds")
	t.Parallel()
	effort.OnlyNode(t)
	// What cannot be known would take the minute until it is given up. On a busy machine more
	// is unfinished; what is finished is known. What ends after the results were read is replayed too.
	r := score(t, "honest", 120, 20*time.Second)
	effort.ErrorIf(t, !r.good() || r.Found != r.Knowable || r.Knowable < 20 || r.Replayed < r.Addresses-r.Unfinished ||
		r.Replayed < 20 || r.Addresses != 120, "%+v", r)
}

// TestAccuracy measures accuracy and manners: `make accuracy`. A sixth of the addresses is of the bad list, so that
// even the strictest receiver takes only minutes.
func TestAccuracy(t *testing.T) {
	if !effort.Long() {
		t.Skip("takes 13 minutes: make accuracy")
	}
	for mix, n := range map[string]int{mixEveryday: 6000, mixAll: 6000, mixBad: 1000} {
		t.Run(mix, func(t *testing.T) {
			r := score(t, mix, n, 6*time.Minute)
			t.Logf("%s", effort.Must(json.MarshalIndent(r, "", "  "))(t))
			effort.ErrorIf(t, !r.good(), "see what is wrong, changed and rude")
		})
	}
}

// The score is not good when a statement is false, a guard was tripped or evidence
// says otherwise when it is judged again; what nobody knows in time is no mistake.
func TestScoreReportCounts(t *testing.T) {
	of := func(o smtp.Outcome, reason smtp.Reason) judged {
		return judged{labelled: labelled{address: "a@b.test", want: smtplab.Expectation{Outcome: smtp.Invalid, Knowable: true,
			Reasons: []smtp.Reason{smtp.MailboxNotFound}}}, outcome: o, reason: reason}
	}
	fair := []judged{of(smtp.Invalid, smtp.MailboxNotFound), of(smtp.Invalid, smtp.MailboxFull),
		of(smtp.Unknown, smtp.Policy), of(smtp.Undecided, smtp.ReasonNone)}
	r := newScoreReport([]part{{all: fair}})
	effort.ErrorIf(t, r.Knowable != 3 || r.Found != 2 || r.Reasoned != 1 || r.Unfinished != 1 || len(r.Missed) != 1 ||
		!r.good(), "%+v", r)
	for _, bad := range []part{{all: append(fair, of(smtp.Valid, smtp.MailboxExists))},
		{sheet: smtplab.Sheet{Tripped: map[string]int{"harvest": 2}}}, {sheet: smtplab.Sheet{Total: smtplab.Tally{Data: 1}}},
		{again: admin.ReplaySummary{Outcomes: 1}}} {
		r := newScoreReport([]part{bad})
		effort.ErrorIf(t, r.good(), "%+v is good", r)
	}
}

func TestTheLabShowsItsSheetWhileItRuns(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	lab := c.start("lab", "--json", "--sheet", "127.0.0.1:0", "--network", "127.70.0.0/16", "--events", "10")
	var view labView
	effort.OK(t, json.Unmarshal([]byte(lab.waitFor("smtp_port")), &view))
	effort.ErrorIf(t, len(view.AllowNetworks) != 1 || view.AllowNetworks[0] != "127.70.0.0/16",
		"allow_networks: got %v, want the network asked for", view.AllowNetworks)
	answer := effort.Must(http.Get(view.Sheet + "/sheet"))(t)
	defer answer.Body.Close()
	var sheet smtplab.Sheet
	err := json.NewDecoder(answer.Body).Decode(&sheet)
	effort.ErrorIf(t, err != nil || sheet.Receivers == nil, "the sheet: got %+v and %v", sheet, err)
	lab.terminate()
}

func TestTheLabListsItsPersonalities(t *testing.T) {
	c := newHere(t)
	var views []personalityView
	c.asks(&views, "lab", "--list")
	all := smtplab.Personalities()
	effort.MustBe(t, len(views), len(all), "personalities")
	for i, p := range all {
		if v := views[i]; v.Name != p.Name || v.About == "" || v.Right == "" || v.MXSuffix != p.MXSuffix {
			t.Errorf("%s: got %+v", p.Name, v)
		}
	}
	effort.Is(t, strings.Count(c.does("lab", "--list"), "\n"), len(all)+1, "lines of the table and its heading")
}
