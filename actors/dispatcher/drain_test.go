package dispatcher

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestADispatcherTakesWorkAgain after a drain, however far the drain has come.
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
				if o.free(at) || o.free(waits) {
					o.t.Error("what was leased again is not renewed")
				}
			})
		})
	}
}

// TestADispatcherThatDrainedFromItsStartTakesWork: the rounds begin all the same.
func TestADispatcherThatDrainedFromItsStartTakesWork(t *testing.T) {
	inBubble(t, func(o *office) {
		d := o.starts()
		d.Drain(true)
		<-time.After(3 * lookEvery)
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
		<-time.After(3 * lookEvery)
		if n := o.book.taken(id); n != 1 {
			o.t.Errorf("it was leased %d times again", n-1)
		}
	})
}
