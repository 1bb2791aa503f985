package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/smtp"
)

// plainEvery is how often a line is written without a terminal while only the counters change. So a log file of a
// day's run stays readable.
const plainEvery = 10 * time.Second

// progressView shows the progress of a verification: a bar on a terminal, plain lines elsewhere. Safe for concurrent
// use.
type progressView struct {
	out      io.Writer
	terminal bool

	mu       sync.Mutex // guards the fields below
	barShown bool
	drawn    time.Time // when the bar was
	status   string    // last told
	waits    string    // last message about a wait for receivers, with its expected end
	written  time.Time // when the last plain line was written
	sending  term.Pace // of bytes
	asking   term.Pace // of addresses
	lastDone int64
}

func newProgressView(out io.Writer) *progressView {
	return &progressView{out: out, terminal: term.IsTerminal(out)}
}

func (v *progressView) notice(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.clearBar()
	fmt.Fprintln(v.out, text)
}

func (v *progressView) phase(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tellPhase(text)
}

func (v *progressView) tellPhase(text string) {
	if text == v.status {
		return
	}
	v.status = text
	v.clearBar()
	fmt.Fprintln(v.out, text)
}

func (v *progressView) uploaded(n, size int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	v.sending.Look(now, n)
	if v.terminal && size > 1<<20 {
		rate := v.sending.PerSecond(now, n)
		text := "uploading"
		if rate > 0 {
			text += fmt.Sprintf(", %.1f MB/s", rate/1e6)
		}
		count := fmt.Sprintf("%.1f/%.1f MB", float64(n)/1e6, float64(size)/1e6)
		v.showBar(n, size, count, text+term.LeftText(rate, size-n))
	}
}

// progress shows the progress of a verification. counted may be older than d.
func (v *progressView) progress(d api.Detail, counted client.Tally) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if d.Progress.Total == nil {
		v.tellPhase(d.Status)
		return
	}
	if d.Issue != nil && d.Issue.Code != api.ReceiversWait && !ledger.Status(d.Status).Final() {
		v.tellPhase(d.Status + ": " + d.Issue.Message)
		return
	}
	v.tellWait(d.Issue)
	v.tell(momentOf(d, counted))
}

// tellWait shows, once for each text, what makes the file wait for receivers.
func (v *progressView) tellWait(i *api.Issue) {
	text := ""
	if i != nil && i.Code == api.ReceiversWait {
		text = i.Message
	}
	if text != v.waits && text != "" {
		v.clearBar()
		fmt.Fprintln(v.out, term.Printable(text))
	}
	v.waits = text
}

type moment struct {
	status               string
	settled, done, total int64 // done: settled or cancelled
	outcomes             string
}

// momentOf combines a status with a count of outcomes. A newer count replaces the number of settled addresses; an
// older one is shown with its own number.
func momentOf(d api.Detail, counted client.Tally) moment {
	m := moment{status: d.Status, settled: d.Progress.Completed + d.Progress.Errors, total: *d.Progress.Total,
		outcomes: outcomeText(counted)}
	if sum := counted.Sum(); sum > m.settled {
		m.settled = sum
	} else if sum < m.settled && sum > 0 {
		m.outcomes = fmt.Sprintf("of %s counted %s", term.Grouped(sum), m.outcomes)
	}
	m.done = min(m.settled+d.Progress.Cancelled, m.total)
	return m
}

// tell shows a moment: always on a terminal, elsewhere only if something changed.
func (v *progressView) tell(m moment) {
	now := time.Now()
	v.asking.Look(now, m.settled)
	text := m.status
	if !v.terminal {
		text = fmt.Sprintf("%s: %s of %s", m.status, term.Grouped(m.done), term.Grouped(m.total))
		if m.total > 0 {
			text += fmt.Sprintf(" (%d %%)", m.done*100/m.total)
		}
	}
	if rate := v.asking.PerSecond(now, m.settled); rate > 0 {
		text += fmt.Sprintf(", %.1f/s", rate)
		if v.waits == "" { // otherwise the message about a wait has the expected end
			text += term.LeftText(rate, m.total-m.done)
		}
	}
	text += after(": ", m.outcomes)
	due := m.done != v.lastDone && now.Sub(v.written) >= plainEvery
	switch {
	case v.terminal:
		v.showBar(m.done, m.total, term.Grouped(m.done)+"/"+term.Grouped(m.total), text)
	case m.status != v.status || due || m.done == m.total && m.done != v.lastDone:
		v.written, v.lastDone = now, m.done
		fmt.Fprintln(v.out, text)
	}
	v.status = m.status
}

// outcomeText lists the outcomes so far, without zeros.
func outcomeText(counted client.Tally) string {
	var parts []string
	for _, o := range smtp.Outcomes {
		if n := counted[o.String()]; n > 0 {
			parts = append(parts, o.String()+" "+term.Grouped(n))
		}
	}
	return strings.Join(parts, ", ")
}

// barWidth is the width of a bar. barEvery is the least time between two drawings; the last one may come sooner.
const (
	barWidth = 10
	barEvery = 100 * time.Millisecond
)

// showBar draws the bar at n of total, in one write, so that bar and text agree.
func (v *progressView) showBar(n, total int64, count, text string) {
	now := time.Now()
	if v.barShown && n < total && now.Sub(v.drawn) < barEvery {
		return
	}
	v.barShown, v.drawn = true, now
	percent := int64(100)
	if total > 0 {
		percent = n * 100 / total
	}
	full := int(percent * barWidth / 100)
	line := fmt.Sprintf("%3d%% |%s%s| (%s) %s", percent, strings.Repeat("█", full), strings.Repeat(" ", barWidth-full),
		count, text)
	width, _ := term.SizeOf(v.out)
	fmt.Fprintf(v.out, "\r%s\x1b[K", term.Clipped(line, width-1))
}

func (v *progressView) clearBar() {
	if v.barShown {
		v.barShown = false
		fmt.Fprint(v.out, "\r\x1b[K")
	}
}

// stop leaves the bar as it is and ends its line.
func (v *progressView) stop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.barShown {
		v.barShown = false
		fmt.Fprintln(v.out)
	}
}

func (v *progressView) closing(s verifySummary) error {
	rows := make([][]string, 0, len(smtp.Outcomes)+2)
	row := func(name string, n, credits int64) {
		share := "-"
		if s.Total > 0 {
			share = fmt.Sprintf("%.1f %%", float64(n)*100/float64(s.Total))
		}
		rows = append(rows, []string{name, term.Grouped(n), share, term.Grouped(credits)})
	}
	for _, o := range smtp.Outcomes {
		n := s.Outcomes[o.String()]
		credits := n
		if o.Free() {
			credits = 0
		}
		row(o.String(), n, credits)
	}
	if s.Cancelled > 0 {
		row("cancelled", s.Cancelled, 0)
	}
	row("total", s.Total, s.Credits.Charged)
	fmt.Fprintln(v.out)
	if err := term.PrintTable(v.out, []string{"OUTCOME", "ADDRESSES", "SHARE", "CREDITS"}, rows); err != nil {
		return err
	}
	took := ""
	if s.took > 0 {
		took = " in " + s.took.Round(100*time.Millisecond).String()
	}
	charged := term.Counted(s.Credits.Charged, "credit") + " charged"
	if !s.repeats.IsZero() {
		charged += " on " + s.repeats.UTC().Format("2 January 2006") + ", nothing now"
	}
	fmt.Fprintf(v.out, "\n%s%s: %s, %s; %s, %s given back.\n", s.Status, took, term.Counted(s.Rows, "row"),
		term.Counted(s.Duplicates, "duplicate"), charged, term.Grouped(s.Credits.Released))
	if !ledger.Status(s.Status).Final() {
		fmt.Fprintln(v.out, "It is not over: these are the results so far.")
	}
	if len(s.full) > 0 {
		fmt.Fprintln(v.out, term.FoldedTo(fmt.Sprintf("%s: invalid if the receiver says that the mailbox is "+
			"full for good; unknown and free if it was only full for now each time we asked; here %s.", fullReason,
			outcomeText(s.full)), 0, term.WidthOf(v.out)))
	}
	if s.Out != nil {
		fmt.Fprintf(v.out, "The results are in %s\n", *s.Out)
	}
	return nil
}
