package http_test

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/google/uuid"

	"rollcall/config/effort"
)

// legal is what may follow each status, as a customer sees
// it: who polls may miss a status, never see one that cannot be reached.
var legal = map[string][]string{
	"uploading":  {"preparing", "cancelled", "failed"},
	"preparing":  {"verifying", "waiting", "failed", "cancelled"},
	"waiting":    {"verifying", "completed", "completed_with_errors", "cancelling", "cancelled", "failed"},
	"verifying":  {"waiting", "completed", "completed_with_errors", "cancelling", "cancelled", "failed"},
	"cancelling": {"cancelled"},
}

// reachable reports whether a status can become another one, over any number of steps.
func reachable(from, to string) bool {
	seen := map[string]bool{from: true}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, next := range legal[queue[0]] {
			if next == to {
				return true
			}
			if !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return false
}

// settledStatus reports whether a status is one of the four ends.
func settledStatus(status string) bool { return legal[status] == nil }

// poller watches one verification as fast as it can and checks that progress
// is honest (I8, I10, I19, P22).
type poller struct {
	f       *flow
	id      uuid.UUID
	stop    chan struct{}
	done    chan struct{}
	last    flowDetail
	polls   int
	history []string // distinct statuses in order
	faults  []string
	ended   int64 // credits when the end was seen
}

// watch starts a poller; finish ends it.
func (f *flow) watch(id uuid.UUID) *poller {
	p := &poller{f: f, id: id, stop: make(chan struct{}), done: make(chan struct{})}
	go p.run()
	return p
}

func (p *poller) run() {
	defer close(p.done)
	for {
		last := false
		select {
		case <-p.stop:
			last = true // one more look, at what is true now
		default:
		}
		var d flowDetail
		if _, err := p.f.ask("GET", "/v1/verifications/"+p.id.String(), nil, &d, 200); err != nil {
			p.faults = append(p.faults, err.Error())
			return
		}
		p.see(d)
		if last {
			return
		}
	}
}

// see checks one answer against the one before.
func (p *poller) see(d flowDetail) {
	fault := func(format string, args ...any) {
		p.faults = append(p.faults, fmt.Sprintf("poll %d, %s: ", p.polls, d.Status)+fmt.Sprintf(format, args...))
	}
	before, first := p.last, p.polls == 0
	p.last = d
	p.polls++
	sum := d.Progress.Completed + d.Progress.Errors + d.Progress.Cancelled
	end := settledStatus(d.Status)
	switch {
	case (d.CompletedAt != nil) != end:
		fault("completed_at is %v", d.CompletedAt)
	case d.Progress.Total == nil && d.Progress.Completed+d.Progress.Errors > 0:
		fault("progress %+v without a total", d.Progress)
	case d.Progress.Total != nil && sum > *d.Progress.Total:
		fault("%d of %d addresses are settled", sum, *d.Progress.Total)
	case d.Progress.Total != nil && (sum == *d.Progress.Total) != end:
		fault("%d of %d addresses are settled", sum, *d.Progress.Total)
	case (d.Input == nil) != (d.Progress.Total == nil):
		fault("input %v, total %v", d.Input, d.Progress.Total)
	case d.Input != nil && d.Input.Rows-d.Input.Duplicates != *d.Progress.Total:
		fault("input %+v, total %d", *d.Input, *d.Progress.Total)
	case (d.Upload != nil) && d.Status != "uploading":
		fault("there is an upload")
	}
	if first || before.Status != d.Status {
		p.history = append(p.history, d.Status)
	}
	if !first {
		p.follow(before, d, fault)
	}
	if end && p.ended == 0 { // the end was seen: the money must be there already
		var c struct{ Credits int64 }
		if _, err := p.f.ask("GET", "/v1/credits", nil, &c, 200); err != nil {
			fault("credits: %v", err)
		}
		p.ended = c.Credits
	}
}

// follow checks what may change between two answers.
func (p *poller) follow(a, b flowDetail, fault func(string, ...any)) {
	if a.Status != b.Status && !reachable(a.Status, b.Status) {
		fault("came after %s", a.Status)
	}
	if b.Progress.Completed < a.Progress.Completed || b.Progress.Errors < a.Progress.Errors ||
		b.Progress.Cancelled < a.Progress.Cancelled {
		fault("progress fell from %+v to %+v", a.Progress, b.Progress)
	}
	if a.Progress.Total != nil && (b.Progress.Total == nil || *a.Progress.Total != *b.Progress.Total) {
		fault("the total changed")
	}
	if settledStatus(a.Status) && !reflect.DeepEqual(a, b) {
		fault("changed after its end: %+v, %+v", a, b)
	}
}

// finish lets the poller look once more and reports what it found: the last
// status, and the credits at the moment that the end was first seen.
func (p *poller) finish(wantStatus string, wantCredits int64) {
	p.f.Helper()
	close(p.stop)
	<-p.done
	for _, fault := range p.faults {
		p.f.Error(fault)
	}
	effort.Is(p.f, p.last.Status, wantStatus, "the last status is")
	effort.Is(p.f, p.ended, wantCredits, "credits were when the end was seen")
	if p.polls < len(p.history) || !slices.Contains(p.history, wantStatus) {
		p.f.Errorf("%d polls saw %v", p.polls, p.history)
	}
}
