package simulation

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp"
)

// job is a verification that a node believes to have.
type job struct {
	lease   ledger.Lease
	v       ledger.Verification
	settled map[int64]bool
	pending *ledger.Settlement // sent, and not answered for sure
	calling bool               // the ledger has not answered: the engine asks one thing at a time
}

// node works on verifications as the engine does: it leases, settles and waits, and trusts the last answer it got.
type node struct {
	id   uuid.UUID
	jobs []*job
}

// lease takes new work.
func (n *node) lease(w *world) {
	before := map[uuid.UUID]int64{}
	for _, f := range w.memory.files {
		if f.row.Node != uuid.Nil && f.row.LeaseExpires > w.memory.now {
			before[f.row.ID] = f.row.Epoch
		}
	}
	runs, forgotten := w.db.runs, n.forgotten(w)
	w.leases++
	calls := w.leases
	list, err := w.book.Lease(context.Background(), n.id, 1+w.random.IntN(3), leaseTTL)
	if !w.answered("lease", err) {
		return
	}
	for _, v := range list {
		if epoch, leased := before[v.ID]; leased && epoch == v.Epoch-1 && w.db.runs == runs+1 {
			w.wrong("lease", "taken from a node whose lease has not expired")
		}
		if v.Epoch == w.epochs[v.ID] && calls != w.leases {
			continue // the same node was told by a call that ran in between
		}
		if v.Epoch <= w.epochs[v.ID] {
			w.wrong("lease", "epoch %d was handed out before", v.Epoch)
		}
		w.epochs[v.ID] = v.Epoch
		j := &job{lease: ledger.Lease{Verification: v.ID, Node: n.id, Epoch: v.Epoch}, v: v, settled: map[int64]bool{}}
		for _, s := range w.memory.fileByID(v.ID).settlements {
			for _, ordinal := range s.batch.Ordinals {
				j.settled[ordinal] = true
			}
		}
		n.jobs = append(n.jobs, j)
	}
	if calls == w.leases && n.forgotten(w) > forgotten { // nobody leased in between
		w.wrong("lease", "a verification was taken and not handed out")
	}
}

// forgotten counts what the book says a node has and the node was never told of.
func (n *node) forgotten(w *world) (count int) {
	for _, f := range w.memory.files {
		if f.row.Node == n.id && f.row.Epoch > w.epochs[f.row.ID] {
			count++
		}
	}
	return count
}

// renew renews the node's leases, and drops jobs whose lease it has lost.
func (n *node) renew(w *world) {
	leases, err := w.book.Renew(context.Background(), n.id, leaseTTL)
	if !w.answered("renew", err) {
		return
	}
	have := map[ledger.Lease]bool{}
	for _, l := range leases {
		have[l] = true
	}
	kept := n.jobs[:0]
	for _, j := range n.jobs {
		if have[j.lease] {
			kept = append(kept, j)
		}
		delete(have, j.lease)
	}
	n.jobs = kept
	for _, l := range leases { // in their order: a seed gives one life
		if have[l] { // handed out in an answer that was lost
			_ = w.book.Release(context.Background(), l)
		}
	}
}

// drop ends a node's belief in a job.
func (n *node) drop(j *job) {
	for i := range n.jobs {
		if n.jobs[i] == j {
			n.jobs = append(n.jobs[:i], n.jobs[i+1:]...)
			return
		}
	}
}

// work does one step of one job.
func (n *node) work(w *world) {
	if len(n.jobs) == 0 {
		return
	}
	j := n.jobs[w.random.IntN(len(n.jobs))]
	if j.calling {
		return
	}
	j.calling = true
	defer func() { j.calling = false }()
	switch v := &j.v; {
	case w.chance(20):
		call := func() {
			w.answered("release", w.book.Release(context.Background(), j.lease), ledger.ErrStaleEpoch)
		}
		call()
		w.again(call)
		n.drop(j)
	case w.chance(15):
		n.report(w, j, act{"crashed", func() (ledger.Verification, error) {
			return w.book.Crashed(context.Background(), j.lease)
		}, func(v *ledger.Verification) bool { return v.Status == ledger.Failed }})
		n.drop(j)
	case v.Status == ledger.Preparing:
		n.intake(w, j)
	case v.Status == ledger.Cancelling && w.chance(500):
		call := func() (ledger.Verification, error) { return w.book.FinishCancel(context.Background(), j.lease) }
		n.report(w, j, act{"finish cancel", call, func(r *ledger.Verification) bool {
			return r.Status == ledger.Cancelled
		}})
	case v.State().Funded() && w.chance(250):
		next := time.Time{}
		if v.Status == ledger.Verifying {
			next = time.UnixMilli(w.memory.now + 1000).UTC()
		}
		o := ledger.Estimate{Next: next, Expected: w.expected()}
		if !next.IsZero() {
			o.Why = w.why(j)
		}
		call := func() (ledger.Verification, error) { return w.book.Wait(context.Background(), j.lease, o) }
		n.report(w, j, act{"wait", call, func(*ledger.Verification) bool { return false }})
	case v.State().Funded() && w.chance(100):
		n.park(w, j)
	case v.State().Funded() && j.pending == nil && w.chance(100):
		w.settleTwice(j)
	case v.State().Funded():
		n.settle(w, j)
	default:
		n.drop(j)
	}
}

// park gives a job back for a while; a later call may find that it was.
func (n *node) park(w *world, j *job) {
	o := ledger.Estimate{Next: time.UnixMilli(w.memory.now + w.random.Int64N(20_000)).UTC(), Expected: w.expected(),
		Why: w.why(j)}
	state := fmt.Appendf(nil, "epoch %d", j.lease.Epoch)
	n.report(w, j, act{"park", func() (ledger.Verification, error) {
		v, err := w.book.Park(context.Background(), j.lease, o, state)
		f := w.memory.fileByID(j.lease.Verification)
		parked := f.row.Epoch == j.lease.Epoch && v.Status == ledger.Waiting && err == nil
		if parked && (f.parked != string(state) || f.row.Node != uuid.Nil || f.row.WakeAt < o.Next.UnixMilli()) {
			w.wrong("answer", "parked, and the book has %q until %d, node %s", f.parked, f.row.WakeAt, f.row.Node)
		}
		return v, err
	}, func(v *ledger.Verification) bool {
		return v.State() == ledger.WaitingReceivers && v.NextTry.Equal(o.Next)
	}})
	if j.v.Status == ledger.Waiting {
		n.drop(j)
	}
}

// act is a call of the engine, and what the book shows when it was executed.
type act struct {
	what string
	call func() (ledger.Verification, error)
	done func(v *ledger.Verification) bool
}

// report makes a call for a job and keeps the answer. The call may come a second time later.
func (n *node) report(w *world, j *job, a act) {
	w.again(func() {
		_, err := a.call()
		w.answered(a.what+" again", err, ledger.ErrStaleEpoch, ledger.ErrIllegal)
	})
	held := w.memory.fileByID(j.lease.Verification).row.HeldBy(j.lease)
	v, err := a.call()
	row := &w.memory.fileByID(j.lease.Verification).row
	if w.answered(a.what, err, ledger.ErrStaleEpoch) {
		j.v = v
	} else if !passing(err) {
		n.refused(w, j, a.what)
		if held && row.Epoch == j.lease.Epoch && a.done(&row.Verification) {
			w.wrong("answer", "%s was executed and refused", a.what)
		}
	}
	if j.v.Status.Final() || !j.v.State().Runnable() {
		n.drop(j)
	}
}

// defective files begin with a byte below this: one in thirteen.
const defective = 20

// defect is what is wrong with them.
var defect = ledger.Issue{Code: "csv_malformed", Row: 1, Text: "anna@"}

// intake reads a file: it is refused, or funded, or waits for credits.
func (n *node) intake(w *world, j *job) {
	u := w.uploadOf(j.v.ID)
	if u.bytes[0] < defective {
		n.report(w, j, act{"refuse", func() (ledger.Verification, error) {
			return w.book.Refuse(context.Background(), j.lease, defect)
		}, func(v *ledger.Verification) bool { return v.Status == ledger.Failed }})
		return
	}
	n.report(w, j, act{"prepare", func() (ledger.Verification, error) {
		v, err := w.book.Prepare(context.Background(), j.lease, u.rows, u.rows-u.total, u.total)
		if err == nil && v.Total != u.total {
			w.wrong("answer", "prepared %d addresses, answered %d", u.total, v.Total)
		}
		return v, err
	}, func(v *ledger.Verification) bool { return v.State() == ledger.WaitingCredits }})
}

func (w *world) uploadOf(id uuid.UUID) *upload {
	f := w.memory.fileByID(id)
	for _, u := range w.uploads {
		if u.identity == f.row.Identity {
			return u
		}
	}
	return nil
}

// settle sends a batch of outcomes; one whose answer was lost is sent again.
func (n *node) settle(w *world, j *job) {
	if j.pending == nil {
		s := w.batch(j)
		if s == nil {
			return
		}
		j.pending = s
	}
	s := *j.pending
	w.again(func() { w.settleLate(s) })
	v, err := w.book.Settle(context.Background(), s)
	switch {
	case w.answered("settle", err, ledger.ErrStaleEpoch):
		w.checkSettled(s, v)
		for _, r := range s.Results {
			j.settled[r.Ordinal] = true
		}
		j.v, j.pending = v, nil
		if v.Status.Final() {
			n.drop(j)
		}
	case !passing(err):
		n.refused(w, j, "settle")
	}
}

// settleTwice sends an outcome of an address that has one, alone or beside one that has none. A
// node that knows less than the book, which was told nothing for sure, may be told another refusal.
func (w *world) settleTwice(j *job) {
	s := ledger.Settlement{Lease: j.lease, Number: j.v.Settlements + 1}
	for ordinal := range max(j.v.Total, 0) {
		if j.settled[ordinal] == (len(s.Results) == 0) && len(s.Results) < 2 {
			s.Results = append(s.Results, ledger.Result{Ordinal: ordinal, Email: emails[ordinal],
				Outcome: smtp.Valid, Reason: smtp.Internal, At: time.UnixMilli(w.memory.now)})
		}
	}
	if len(s.Results) == 0 {
		return
	}
	_, err := w.book.Settle(context.Background(), s)
	if w.answered("settle twice", err, ledger.ErrIllegal, ledger.ErrStaleEpoch) {
		w.wrong("I9", "ordinal %d was charged again", s.Results[0].Ordinal)
	}
}

// refused ends a job because a call was refused for its lease. The lease must then really belong to another node.
func (n *node) refused(w *world, j *job, what string) {
	if w.memory.fileByID(j.lease.Verification).row.HeldBy(j.lease) {
		w.wrong("lease", "%s was refused to the holder of the lease", what)
	}
	n.drop(j)
}

// settleLate is a message that was thought lost, or comes twice.
func (w *world) settleLate(s ledger.Settlement) {
	v, err := w.book.Settle(context.Background(), s)
	if w.answered("settle late", err, ledger.ErrStaleEpoch, ledger.ErrIllegal) {
		w.checkSettled(s, v)
	}
}

// batch makes outcomes for some of the unsettled addresses; nil: all are settled.
func (w *world) batch(j *job) *ledger.Settlement {
	s := &ledger.Settlement{Lease: j.lease, Number: j.v.Settlements + 1}
	most := 1 + w.random.IntN(4)
	for ordinal := range max(j.v.Total, 0) {
		if len(s.Results) < most && !j.settled[ordinal] && w.chance(700) {
			s.Results = append(s.Results, ledger.Result{Ordinal: ordinal, Email: emails[ordinal],
				Outcome: smtp.Outcomes[w.random.IntN(len(smtp.Outcomes))], Reason: smtp.Internal,
				At: time.UnixMilli(w.memory.now)})
		}
	}
	if len(s.Results) == 0 {
		return nil
	}
	s.Evidence, s.Expected, s.Why = evidenceOf(s), w.expected(), w.why(j)
	return s
}

// why returns the sentence of a wait, never empty, and new each time.
func (w *world) why(j *job) string {
	return fmt.Sprintf("epoch %d at %d", j.lease.Epoch, w.memory.now)
}

// expected returns when a file may end, or the zero time.
func (w *world) expected() time.Time {
	if w.chance(300) {
		return time.Time{}
	}
	return time.UnixMilli(w.memory.now + w.random.Int64N(100_000)).UTC()
}

// evidenceOf makes evidence that tells one settlement from another, and none for
// each third. It depends on nothing but what makes two settlements the same.
func evidenceOf(s *ledger.Settlement) []byte {
	if s.Number%3 == 0 {
		return nil
	}
	text := fmt.Appendf(nil, "%s %d of epoch %d", s.Lease.Verification, s.Number, s.Lease.Epoch)
	for _, r := range s.Results {
		text = fmt.Appendf(text, " %d %s", r.Ordinal, r.Outcome)
	}
	return text
}

// emails are the addresses of every file.
var emails = func() (list [totalMax]string) {
	for i := range list {
		list[i] = fmt.Sprintf("a%d@b.test", i)
	}
	return list
}()

// checkSettled holds the answer "settled" against the book: exactly these outcomes
// are there under this number, and were written by the node that had the lease.
func (w *world) checkSettled(s ledger.Settlement, v ledger.Verification) {
	f := w.memory.fileByID(s.Lease.Verification)
	if s.Number < 1 || int(s.Number) > len(f.settlements) || v.Settlements < s.Number {
		w.wrong("P2", "settlement %d was answered and is not in the book", s.Number)
		return
	}
	in := &f.settlements[s.Number-1]
	if in.number != s.Number || in.epoch != s.Lease.Epoch || in.batch.Len() != len(s.Results) {
		w.wrong("P2", "settlement %d of epoch %d was answered, the book has that of epoch %d",
			s.Number, s.Lease.Epoch, in.epoch)
		return
	}
	if in.evidence != string(s.Evidence) {
		w.wrong("evidence", "settlement %d was answered with %q, the book has %q", s.Number, s.Evidence, in.evidence)
	}
	for i, r := range s.Results {
		if in.batch.Ordinals[i] != r.Ordinal || in.batch.Outcomes[i] != r.Outcome {
			w.wrong("I9", "ordinal %d has another outcome than was answered", r.Ordinal)
		}
	}
}
