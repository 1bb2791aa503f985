package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/ledger/evidence"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// scoreReport shows how well the addresses of lists were judged, and how their receivers were treated.
type scoreReport struct {
	Addresses  int
	Domains    int
	Knowable   int // addresses that a careful engine can decide
	Found      int // of these, with the right outcome
	Reasoned   int // of these, with a right reason
	Unfinished int // still waiting for receivers' limits at the end; not counted elsewhere
	Replayed   int // addresses whose stored evidence was judged again
	Changed    int // of these, with another result; must be 0
	Sessions   int
	Rcpts      int
	TooEarly   int            // greylisted addresses asked before the stated time
	Wrong      map[string]int // false statements; must be none
	Missed     map[string]int // results of knowable addresses that were not found
	Rude       map[string]int // tripped guards and bad manners; must be none
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

// compared counts how the outcomes of a sample agree with what the lab knows.
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

// TestLabScoreOfHonestReceivers is a whole run of a small list: everything knowable is known, nothing is wrong, and
// the kept evidence gives each outcome and reason again.
func TestLabScoreOfHonestReceivers(t *testing.T) {
	effort.NotShort(t, "runs a node for twenty seconds")
	t.Parallel()
	effort.OnlyNode(t)
	// Unknowable addresses would be given up only after a minute. On a busy machine more addresses stay unfinished,
	// but the finished ones are known. Addresses that end after the results were read are replayed too.
	r := score(t, "honest", 120, 20*time.Second)
	effort.ErrorIf(t, !r.good() || r.Found != r.Knowable || r.Knowable < 20 || r.Replayed < r.Addresses-r.Unfinished ||
		r.Replayed < 20 || r.Addresses != 120, "%+v", r)
}

// TestAccuracy measures accuracy and manners: `make accuracy`. A sixth of the addresses is of the bad list; with so
// few, even the strictest receiver takes only minutes.
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

// TestScoreReportCounts: a score is not good if a statement is false, a guard was tripped, or evidence judged again
// gives another result. An address that nobody knows in time is no mistake.
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
		{again: evidence.ReplaySummary{Outcomes: 1}}} {
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

// part is the result of one list at one lab.
type part struct {
	all   []judged
	sheet smtplab.Sheet
	again evidence.ReplaySummary
}

// score makes a list of n addresses, verifies it and counts the results. For mixAll each family of personalities gets
// its own lab and node, because a source that many receivers refuse is suspended everywhere: the families that refuse
// us would block the others. They run at the same time, and mostly wait.
func score(t *testing.T, mix string, n int, within time.Duration) scoreReport {
	t.Helper()
	if mix != mixAll {
		return newScoreReport([]part{scorePart(t, mix, n, within)})
	}
	members := map[string]int{}
	for _, p := range smtplab.Personalities() {
		members[p.Family]++
	}
	families := slices.Sorted(maps.Keys(members))
	done, parts := make(chan part, len(families)), []part(nil)
	atOnce(t, families, func(family string) string { return family }, func(t *testing.T, family string) {
		done <- scorePart(t, family, max(1, n*members[family]/len(smtplab.Personalities())), within)
	})
	close(done)
	for one := range done {
		parts = append(parts, one)
	}
	return newScoreReport(parts)
}

// scorePart verifies one list with its own node against its own lab.
func scorePart(t *testing.T, mix string, n int, within time.Duration) part {
	t.Helper()
	tr := startTrial(t, trialLab(), func(*smtplab.Lab, *config.Config) {})
	all, id := tr.verify(t, scoreList(tr.lab, mix, n), within)
	return part{all, tr.lab.Manners(), tr.replay(t, id, all)}
}

// Mixes besides those of one family of personalities.
const (
	mixEveryday = "everyday" // like customers' lists
	mixAll      = "all"      // every family
	mixBad      = "bad"      // missing mailboxes only, at receivers whose harvest guards count them
)

// scoreMailboxes are the beginnings of the addresses at a domain. Most exist, some don't, and there is one of each
// special kind.
var scoreMailboxes = [20]string{"anna.", "anna.", "ghost-", "full.", "anna.", "disabled.", "anna.", "ghost-",
	"restricted", "anna.", "overquota", "anna.", "ghost-", "busy.", "anna.", "anna.", "anna.", "anna.", "anna.", "anna."}

// scoreList makes a labelled list of n addresses, the same each time.
func scoreList(lab *smtplab.Lab, mix string, n int) (list []labelled) {
	add := func(address, personality string) {
		list = append(list, labelled{address: address, personality: personality, want: lab.Truth(address)})
	}
	if mix == mixEveryday {
		for _, address := range smtplab.Sample(1, n, max(1, n/20)) {
			add(address, strings.TrimSuffix(address[strings.LastIndexByte(address, '-')+1:], ".test"))
		}
		return list
	}
	family, perDomain := mix, len(scoreMailboxes)
	if mix == mixBad {
		family, perDomain = "guard", 40 // one receiver gets more missing mailboxes than any guard tolerates
	}
	var members []string
	for _, p := range smtplab.Personalities() {
		if p.Family == family && p.DNS != smtplab.OnlyIPv6 {
			members = append(members, p.Name)
		}
	}
	for i := range n {
		begins, personality := scoreMailboxes[i%len(scoreMailboxes)], members[i/perDomain%len(members)]
		if mix == mixBad {
			begins = "ghost-"
		}
		add(fmt.Sprintf("%s%s@d%d-%s.test", begins, letters(i), i/perDomain, personality), personality)
	}
	return interleaved(list) // customers' files are not sorted
}

// interleaved reorders a list in strides, so that the addresses of a domain don't stand together.
func interleaved(list []labelled) []labelled {
	const stride = 97
	out := make([]labelled, 0, len(list))
	for first := range min(stride, len(list)) {
		for i := first; i < len(list); i += stride {
			out = append(out, list[i])
		}
	}
	return slices.Clip(out)
}

// replay judges every attempt of a verification again from the stored evidence.
func (tr *trial) replay(t *testing.T, id string, all []judged) evidence.ReplaySummary {
	t.Helper()
	return effort.Must(evidence.Replay(t.Context(), tr.node.Book, uuid.MustParse(id), evidence.ReplayQuery{
		Rules: verdict.Builtin(), All: true, Yield: func(one evidence.Replayed) error {
			if one.Ordinal >= int64(len(all)) || one.Address != all[one.Ordinal].address {
				return fmt.Errorf("there is evidence for address %d, which isn't in the list", one.Ordinal)
			}
			return nil
		}}))(t)
}

// A trial scales the long waits of real receivers, so that it ends in minutes. It uses the shipped limits, and so
// shows a node's real manners.
const (
	// trialHour is how long an hour lasts, for the lab and for the node. So even the strictest receiver answers its
	// part of a list of bad addresses within a run. The rates are not scaled: in one such hour they allow 30 sessions
	// with 2 refusals each, more than guards tolerate.
	trialHour = 36 * time.Second

	// trialGreylist stands for the 300 s of the most common greylisting program.
	trialGreylist = trialHour / 12

	// trialGiveUp is how long an undecided address is asked again: several times the lab's longest scaled greylisting.
	// In service it is six hours.
	trialGiveUp = 60 * time.Second
)

// labelled is one address of a trial with its correct result.
type labelled struct {
	address     string
	personality string // of the lab
	want        smtplab.Expectation
}

// judged is a trial's result for one address.
type judged struct {
	labelled
	outcome smtp.Outcome // smtp.Undecided: not known at the end
	reason  smtp.Reason
}

// trial is a lab and a whole node in this process, with ledger, actors and sockets.
type trial struct {
	folder string // of its data
	lab    *smtplab.Lab
	node   *node.Node
	client *client.API
}

func trialLab() smtplab.Options {
	o := smtplab.Defaults()
	o.GreylistWait, o.HourLasts = trialGreylist, trialHour
	o.SessionsMax = 2 * node.SessionsMax // the lab's only client is this node, which limits itself
	return o
}

// startTrial starts a lab and a node, which run until the test ends.
func startTrial(t *testing.T, o smtplab.Options, change func(l *smtplab.Lab, c *config.Config)) *trial {
	t.Helper()
	tr := &trial{folder: filepath.Join(t.TempDir(), "data"), lab: startLab(t, o)}
	c := trialConfig(tr.folder, tr.lab)
	change(tr.lab, &c)
	tr.node = effort.Must(node.Start(context.Background(), c, node.Options{Log: slog.New(slog.DiscardHandler),
		Hour: trialHour}))(t)
	t.Cleanup(func() { effort.ErrIs(t, node.StopNode(context.Background(), tr.node), nil) })
	tr.client = customerOf(t, tr.node, tr.folder, "lab score", c.Limits.MaxRows)
	return tr
}

// trialConfig is the configuration of a trial's node: the defaults, except for the folder, the lab and the waits.
func trialConfig(folder string, lab *smtplab.Lab) config.Config {
	c := node.LocalConfig(config.Default(), folder, false)
	c.Throttle.File = ""
	c.DNS.Servers = []string{lab.DNSAddr()}
	c.SMTP.Port = lab.SMTPPort()
	c.SMTP.AllowNetworks = []string{lab.Network().String()}
	c.SMTP.HelloName = "rollcall.example"
	c.Retry.GiveUpAfter = config.Duration{Duration: trialGiveUp}
	for i := range c.Retry.GreylistWaits {
		wait := &c.Retry.GreylistWaits[i].Duration
		*wait = throttle.Hour(trialHour).Of(*wait)
	}
	return c
}

// verify verifies a list for a limited time. It returns the results in the order of the list, as a customer reads
// them, and the verification's id.
func (tr *trial) verify(t *testing.T, list []labelled, within time.Duration) ([]judged, string) {
	t.Helper()
	var file, results bytes.Buffer
	lines := csv.NewWriter(&file)
	_ = lines.Write([]string{"email"})
	for _, l := range list {
		_ = lines.Write([]string{l.address})
	}
	lines.Flush()
	id := mustHandIn(t.Context(), t, tr.client, file.Bytes())
	limited, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	end(limited, tr.client, id)
	effort.OK(t, writeResults(t.Context(), tr.client, id, &results))
	rows, all := effort.Must(readRows(&results))(t), make([]judged, len(list))
	for i, l := range list {
		all[i] = judged{l, rows[l.address].outcome, rows[l.address].reason}
	}
	return all, id
}

func resultWords() (map[string]smtp.Outcome, map[string]smtp.Reason) {
	outcomes, reasons := map[string]smtp.Outcome{}, map[string]smtp.Reason{}
	for _, o := range smtp.Outcomes {
		outcomes[o.String()] = o
	}
	for r := smtp.ReasonNone + 1; r.Known(); r++ {
		reasons[r.Message()] = r
	}
	return outcomes, reasons
}
