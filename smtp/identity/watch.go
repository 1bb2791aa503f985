package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Watch checks everything on a schedule and keeps the findings. Report is safe for concurrent use.
type Watch struct {
	options Options
	again   chan chan struct{} // from Again; Run closes them after the check
	far     []Finding          // last findings from DNS and port 25
	report  atomic.Pointer[Report]
}

// NewWatch makes a Watch that has checked nothing yet.
func NewWatch(o Options) *Watch {
	w := &Watch{options: o, again: make(chan chan struct{})}
	w.report.Store(&Report{})
	return w
}

// Report returns the last report.
func (w *Watch) Report() Report { return *w.report.Load() }

// Once checks everything now and returns the report. Not while Run runs.
func (w *Watch) Once(ctx context.Context) Report {
	w.checkAll(ctx)
	return w.publish(time.Now())
}

// Again makes Run check everything now and returns the report. If ctx ends first it returns the last report and an
// error.
func (w *Watch) Again(ctx context.Context) (Report, error) {
	looked := make(chan struct{})
	select {
	case w.again <- looked:
	case <-ctx.Done():
		return w.Report(), context.Cause(ctx)
	}
	select {
	case <-looked:
		return w.Report(), nil
	case <-ctx.Done():
		return w.Report(), context.Cause(ctx)
	}
}

// Run checks everything on a schedule until ctx ends: at once, unless Once did it.
func (w *Watch) Run(ctx context.Context) {
	next := time.Now()
	if report := w.Report(); !report.Checked.IsZero() {
		next = next.Add(w.wait(report))
	}
	for ctx.Err() == nil {
		if !time.Now().Before(next) {
			report := w.Once(ctx)
			next = time.Now().Add(w.wait(report))
		} else {
			w.publish(w.Report().Checked)
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(lookEvery, max(time.Until(next), time.Millisecond))):
		case looked := <-w.again:
			next = time.Now().Add(w.wait(w.Once(ctx)))
			close(looked)
		}
	}
}

// wait returns the time until the next check of DNS, with a tenth at random.
func (w *Watch) wait(r Report) time.Duration {
	every := checkEvery
	if !r.Eligible() || r.Incomplete() {
		every = failingEvery
	}
	return every - every/20 + time.Duration(w.options.Jitter(int64(every/10)))
}

// publish makes a report from the last DNS findings and from memory, and calls Changed if it differs from the last.
func (w *Watch) publish(checked time.Time) Report {
	now, o := time.Now(), w.options
	findings := append([]Finding(nil), w.far...)
	if o.Reach != nil && len(o.Hosts) == 0 {
		findings = append(findings, CheckReach(o.Reach, now))
	}
	if o.Offset != nil {
		offset, ok := o.Offset()
		findings = append(findings, CheckClock(offset, ok, now))
	}
	if o.Suspensions != nil {
		findings = append(findings, CheckSuspensions(o.Suspensions(), now)...)
	}
	report := Report{Checked: checked, Findings: sorted(findings)}
	was := w.report.Swap(&report)
	w.logChanges(*was, report)
	o.Changed(report)
	return report
}

func (w *Watch) logChanges(was, is Report) {
	known := map[about]State{}
	for _, f := range was.Findings {
		known[f.about()] = f.State
	}
	for _, f := range is.Findings {
		before, there := known[f.about()]
		if before == f.State {
			continue
		}
		switch {
		case f.State == Fail || f.State == Warn:
			w.options.Log.Warn("identity check does not pass", "check", string(f.Check), "source", f.Source,
				"state", string(f.State), "saw", f.Saw, "next", f.Next)
		case f.State == OK && there && before != Skipped:
			w.options.Log.Info("identity check passes again", "check", string(f.Check), "source", f.Source, "saw", f.Saw)
		}
	}
}

// checkAll runs all checks of DNS and port 25.
func (w *Watch) checkAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	now := time.Now()
	found := w.ask(ctx)
	for i := range found {
		if found[i].At.IsZero() {
			found[i].At = now
		}
	}
	w.far = merge(w.far, found, now)
}

// ask runs all checks that use the network, several at a time.
func (w *Watch) ask(ctx context.Context) []Finding {
	sources, err := w.options.Sources()
	if err != nil {
		return []Finding{notChecked(PTR, "", err)}
	}
	var checks []func() []Finding
	one := func(check func() Finding) {
		checks = append(checks, func() []Finding { return []Finding{check()} })
	}
	r, seen := w.options.Resolver, false
	for _, s := range sources {
		if why := special(s.Addr); why != "" {
			checks = append(checks, func() []Finding { return unseen(s, why, w.options.Lab) })
			if !w.options.Lab {
				seen = true
				one(func() Finding { return CheckHello(ctx, r, s) })
			}
			continue
		}
		seen = true
		one(func() Finding { return CheckPTR(ctx, r, s) })
		one(func() Finding { return CheckHello(ctx, r, s) })
		one(func() Finding { return CheckSPF(ctx, r, s) })
		if w.options.Lists != nil {
			checks = append(checks, func() []Finding { return w.options.Lists.Check(ctx, r, s, time.Now()) })
		}
	}
	if seen {
		one(func() Finding { return CheckReturnPath(ctx, r, w.options.Return) })
	}
	if len(w.options.Hosts) > 0 {
		for _, way := range w.options.Ways {
			one(func() Finding { return CheckPort(ctx, r, way, w.options.Hosts) })
		}
	}
	return together(checks)
}

// unseen returns the findings for a source that no receiver on the Internet can see.
func unseen(s Source, why string, lab bool) []Finding {
	next := ""
	if !lab {
		next = "Name the addresses that receivers see in identity.public_addresses."
	}
	var out []Finding
	for _, c := range []Check{PTR, SPF} {
		out = append(out, Finding{Check: c, Source: s.Addr.String(), State: Skipped,
			Saw: fmt.Sprintf("%s address: no receiver on the Internet sees it", why), Next: next})
	}
	return out
}

func together(checks []func() []Finding) []Finding {
	found := make([][]Finding, len(checks))
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, check := range checks {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			found[i] = check()
		})
	}
	all.Wait()
	return slices.Concat(found...)
}

const (
	// checkEvery is the interval of the checks of DNS and port 25; failingEvery is the interval while one fails, so
	// that a repaired record is seen soon. Guesses.
	checkEvery   = 15 * time.Minute
	failingEvery = time.Minute

	// lookEvery is the interval of the checks in memory.
	lookEvery = 10 * time.Second

	// checkWithin bounds one full check, DNS and connections included.
	checkWithin = 2 * time.Minute

	// atOnce is how many questions a check asks at the same time.
	atOnce = 8
)

// Options configure a Watch. Resolver, Sources, Return, Jitter, Log and Changed are required.
type Options struct {
	Resolver Resolver
	// Sources returns the addresses to check. It is called for each check, because interfaces change.
	Sources func() ([]Source, error)
	Return  string // return path, for the check that is the same for all sources
	// Lab says that receivers are simulated: sources that the Internet cannot see are then no fault and are not checked.
	Lab   bool
	Ways  []Way    // outgoing paths to try Hosts; none: Reach judges port 25
	Hosts []string // to dial for a check of port 25
	Reach *Reach   // results of the node's own sessions; nil: none
	Lists *Lists   // nil: no block list is asked
	// Offset is the ledger's clock minus ours; false: not known. nil: not checked.
	Offset func() (time.Duration, bool)
	// Suspensions returns which sources are suspended. nil: unknown.
	Suspensions func() []Suspension
	// Jitter returns a random number below n, so that nodes do not ask together.
	Jitter func(n int64) int64
	Log    *slog.Logger
	// Changed gets each new report, from one goroutine.
	Changed func(Report)
}

// ErrOptions means that the options are not usable; the text names what is missing.
var ErrOptions = errors.New("not usable as identity options")
