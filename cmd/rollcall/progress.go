package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/smtp"
)

// plainEvery is how often a line is written off a terminal while nothing but
// the counters changes: a log file of a day's run stays readable.
const plainEvery = 10 * time.Second

// progressView shows a person how far a verification is: a bar on a terminal,
// plain lines elsewhere. Safe for concurrent use.
type progressView struct {
	out      io.Writer
	terminal bool

	mu       sync.Mutex               // guards the fields below
	bar      *progressbar.ProgressBar // nil: none shown
	total    int64                    // of the bar
	status   string                   // last told
	told     time.Time                // when the last plain line was written
	begun    time.Time                // when probing was first seen
	begunAt  int64                    // how many were done then
	lastDone int64
}

func newProgressView(out io.Writer) *progressView {
	f, ok := fileOf(out)
	return &progressView{out: out, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// notice tells something that makes us wait.
func (v *progressView) notice(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.clear()
	fmt.Fprintln(v.out, text)
}

// phase tells that something else begins.
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
	v.clear()
	fmt.Fprintln(v.out, text)
}

// uploaded shows how many bytes of size are on their way.
func (v *progressView) uploaded(n, size int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.terminal && size > 1<<20 {
		v.show(n, size, "uploading", progressbar.OptionShowBytes(true))
	}
}

// progress shows a verification. counted may be older than d.
func (v *progressView) progress(d api.Detail, counted tally) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if d.Progress.Total == nil {
		v.tellPhase(d.Status)
		return
	}
	if d.Issue != nil && !ledger.Status(d.Status).Final() {
		v.tellPhase(d.Status + ": " + d.Issue.Message)
		return
	}
	done, total := d.Progress.Completed+d.Progress.Errors+d.Progress.Cancelled, *d.Progress.Total
	if v.begun.IsZero() {
		v.begun, v.begunAt = time.Now(), done
	}
	if v.terminal {
		v.show(done, total, d.Status+"  "+outcomeText(counted))
		v.status = d.Status
		return
	}
	due := done != v.lastDone && time.Since(v.told) >= plainEvery
	if d.Status != v.status || due || done == total && done != v.lastDone {
		v.status, v.told, v.lastDone = d.Status, time.Now(), done
		text := v.line(d.Status, done, total)
		if outcomes := outcomeText(counted); outcomes != "" {
			text += ": " + outcomes
		}
		fmt.Fprintln(v.out, text)
	}
}

// line is a plain line of progress.
func (v *progressView) line(status string, done, total int64) string {
	text := fmt.Sprintf("%s: %s of %s", status, grouped(done), grouped(total))
	if total > 0 {
		text += fmt.Sprintf(" (%d %%)", done*100/total)
	}
	elapsed := time.Since(v.begun).Seconds()
	if fresh := done - v.begunAt; fresh > 0 && elapsed >= 1 {
		rate := float64(fresh) / elapsed
		text += fmt.Sprintf(", %.1f/s", rate)
		if left := float64(total-done) / rate; left >= 1 {
			text += fmt.Sprintf(", about %s left", time.Duration(left*float64(time.Second)).Round(time.Second))
		}
	}
	return text
}

// outcomeText is the outcomes so far, those that there are.
func outcomeText(counted tally) string {
	var parts []string
	for _, o := range smtp.Outcomes {
		if n := counted[o.String()]; n > 0 {
			parts = append(parts, o.String()+" "+grouped(n))
		}
	}
	return strings.Join(parts, ", ")
}

// show draws the bar at n of total.
func (v *progressView) show(n, total int64, text string, more ...progressbar.Option) {
	if v.bar == nil || v.total != total {
		v.clear()
		v.total = total
		v.bar = progressbar.NewOptions64(total, append([]progressbar.Option{
			progressbar.OptionSetWriter(v.out), progressbar.OptionShowCount(), progressbar.OptionShowIts(),
			progressbar.OptionSetPredictTime(true), progressbar.OptionSetElapsedTime(true),
			progressbar.OptionSetWidth(20), progressbar.OptionShowDescriptionAtLineEnd(),
			progressbar.OptionSetItsString("addr"), progressbar.OptionThrottle(100 * time.Millisecond),
		}, more...)...)
	}
	v.bar.Describe(text)
	v.draw(v.bar.Set64(n))
}

// clear takes the bar from the screen.
func (v *progressView) clear() {
	if v.bar != nil {
		v.draw(v.bar.Clear())
		v.bar = nil
	}
}

// draw takes the error of drawing: a terminal that is gone is no reason to
// stop the work.
func (v *progressView) draw(error) {}

// stop leaves the bar as it is and ends its line.
func (v *progressView) stop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.bar != nil {
		v.bar = nil
		fmt.Fprintln(v.out)
	}
}

// closing prints the table of outcomes with their credits.
func (v *progressView) closing(s verifySummary) error {
	rows := make([][]string, 0, len(smtp.Outcomes)+2)
	row := func(name string, n, credits int64) {
		share := "-"
		if s.Total > 0 {
			share = fmt.Sprintf("%.1f %%", float64(n)*100/float64(s.Total))
		}
		rows = append(rows, []string{name, grouped(n), share, grouped(credits)})
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
	if err := printTable(v.out, []string{"OUTCOME", "ADDRESSES", "SHARE", "CREDITS"}, rows); err != nil {
		return err
	}
	took := ""
	if s.took > 0 {
		took = " in " + s.took.Round(100*time.Millisecond).String()
	}
	fmt.Fprintf(v.out, "\n%s%s: %s, %s; %s charged, %s given back.\n", s.Status, took, counted(s.Rows, "row"),
		counted(s.Duplicates, "duplicate"), counted(s.Credits.Charged, "credit"), grouped(s.Credits.Released))
	if !ledger.Status(s.Status).Final() {
		fmt.Fprintln(v.out, "It is not over: these are the results so far.")
	}
	if s.Out != nil {
		fmt.Fprintf(v.out, "The results are in %s\n", *s.Out)
	}
	return nil
}
