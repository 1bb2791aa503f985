package dispatcher

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
)

// TestADispatcherTakesWorkAgain: an undrain works at every stage of a drain.
func TestADispatcherTakesWorkAgain(t *testing.T) {
	for name, far := range map[string]func(o *office, d *Dispatcher){
		"that has given all back": func(o *office, d *Dispatcher) {
			d.Drain(true)
			o.until("it gave its leases back", func() bool { return d.Leases() == 0 })
		},
		"that has just begun": func(_ *office, d *Dispatcher) { d.Drain(true) },
		"that was asked for again and again": func(_ *office, d *Dispatcher) {
			for range 10 {
				d.Drain(true)
				d.Drain(false)
				synctest.Wait()
				d.Drain(true)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(o *office) {
				o.options.BytesMax = 20
				at, waits := o.uploads("a@slow.test\n"), o.uploads("abcdef@slow.test\n")
				d := o.starts()
				o.until("one is at work and one in line", func() bool { return o.book.handed() == 2 })
				far(o, d)
				d.Drain(false)
				o.until("both are leased again", func() bool {
					_, ok := d.Lookup(at)
					_, also := d.Lookup(waits)
					return ok && also && d.Leases() == 2
				})
				<-time.After(2 * leaseTTL)
				effort.ErrorIf(o.t, o.free(at) || o.free(waits), "what was leased again is not renewed")
			})
		})
	}
}

// TestADispatcherThatDrainedFromItsStartTakesWork: the rounds begin all the same.
func TestADispatcherThatDrainedFromItsStartTakesWork(t *testing.T) {
	inBubble(t, func(o *office) {
		d := o.starts()
		d.Drain(true)
		<-time.After(3 * searchEvery)
		d.Drain(false)
		synctest.Wait()
		id := o.uploads("a@none.test\n") // nobody wakes it
		o.until("it is found and finished", o.finished(id))
	})
}

func TestADispatcherThatStopsTakesNoWorkAgain(t *testing.T) {
	inBubble(t, func(o *office) {
		d := o.starts()
		id := o.uploads("a@slow.test\n")
		o.until("it has work", func() bool { return o.book.taken(id) == 1 })
		d.Drain(true)
		done := make(chan struct{})
		d.root.Send(d.pid, stop{done}) // as Stop does, before it ends the actor
		d.Drain(false)
		<-done
		<-time.After(3 * searchEvery)
		n := o.book.taken(id)
		effort.ErrorIf(o.t, n != 1, "it was leased %d times again", n-1)
	})
}

// TestAFileThatChangedIsSetAside: the bytes of a file are others than those for which credits were held. The
// second crash over it sets it aside, and the credits are back. No lease takes it again.
func TestAFileThatChangedIsSetAside(t *testing.T) {
	o := newOffice(t) // on the real clock, which is the ledger's
	ctx := context.Background()
	id := o.uploads("a@none.test\nb@none.test\n")
	other := uuid.New()
	list, err := o.book.Store.Lease(ctx, other, 1, time.Hour)
	effort.FatalIf(t, err != nil || len(list) != 1, "%d are leased, %v", len(list), err)
	lease := ledger.Lease{Verification: id, Node: other, Epoch: list[0].Epoch}
	effort.Must(o.book.Prepare(ctx, lease, 2, 0, 2))(t)
	effort.OK(t, o.book.Store.Release(ctx, lease))
	o.behind(`UPDATE upload_chunks SET data = CAST('a@none.test' || char(10) || 'no address.' || char(10) AS BLOB) RETURNING 1`)
	d := o.starts()
	o.until("the first crash is noted", func() bool { return o.behind(`SELECT crashes FROM verifications`) == 1 })
	effort.Is(t, o.sees(id).Status, ledger.Verifying, "after the first crash it")
	o.behind(`UPDATE verifications SET wake_at = wake_at - 60000 RETURNING 1`) // the rest between two tries is over
	d.Wake()
	o.until("it is set aside", func() bool { return o.sees(id).Status == ledger.Failed })
	v := o.sees(id)
	effort.ErrorIf(t, v.Issue == nil || v.Issue.Code != ledger.InternalError || o.book.count("crashed") != 2,
		"after %d crashes it failed with %+v", o.book.count("crashed"), v.Issue)
	o.until("an operator is told", func() bool { return o.log.has("set aside") && o.log.has("read differently") })
	effort.Is(t, effort.Must(o.book.Balance(ctx, o.workspace))(t), (ledger.Balance{Granted: 1000, Available: 1000}),
		"the account")
}

// behind runs a statement behind the ledger's back, and gives the number that it answers.
func (o *office) behind(statement string) (n int) {
	o.t.Helper()
	db, err := sql.Open("sqlite", strings.TrimPrefix(o.url, "sqlite:")+"?_pragma=busy_timeout(5000)") // the driver of package sqlstore
	if err == nil {
		err = db.QueryRow(statement).Scan(&n)
		err = errors.Join(err, db.Close())
	}
	effort.OK(o.t, err)
	return n
}
