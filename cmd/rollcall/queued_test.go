package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
)

// queuedAt is how many addresses wait for a receiver, as both tables say at one moment.
type queuedAt struct {
	at                      time.Time
	receivers, verification int
}

// What a domain counts is told to its verification every two seconds and summed each second,
// and told to its receiver within one or two: what one table says at a moment the other says
// at some moment of tablesAround before or after it, unless it was so for less than
// tablesApart.
const (
	tablesAround = 4 * time.Second
	tablesApart  = 3 * time.Second
)

// TestTheTwoTablesAgree for the whole life of a file at a slow receiver: half of its
// mailboxes put us off for two seconds, again and again, so that addresses that are due pile up behind
// what the receiver has been handed.
func TestTheTwoTablesAgree(t *testing.T) {
	effort.NotShort(t, "a whole node")
	t.Parallel()
	j := newJudged(t, `greylist_waits = ["2s"]
give_up_after = "4s"
[throttle.receivers."queued-clean.test"]
connections = 2
connection_rate = "50/s"
rcpt_rate = "6/s"
retry_waits = ["2s"]
`)
	ctx, cancel := context.WithTimeout(t.Context(), loadWait)
	defer cancel()
	var file bytes.Buffer
	file.WriteString("email\n")
	for i := range 60 {
		kind := "one"
		if i%2 == 0 {
			kind = "overquota"
		}
		fmt.Fprintf(&file, "%s.%s@queued-clean.test\n", kind, letters(i)[:min(5, len(letters(i)))])
	}
	token, err := client.ReadToken(filepath.Join(j.folder, "rollcall-data"))
	if err != nil {
		t.Fatal(err)
	}
	operator, c := client.NewAdmin(j.admin, token), j.client()
	id := j.submit(ctx, c, file.Bytes())
	var all []queuedAt
	for {
		d, err := look(ctx, c, id)
		if err != nil {
			t.Fatal(err)
		}
		if d.CompletedAt != nil {
			break
		}
		if one, ok := queuedNow(ctx, operator, id); ok {
			all = append(all, one)
		}
		if err := term.Sleep(ctx, 100*time.Millisecond); err != nil {
			t.Fatalf("no end in sight: %+v", d)
		}
	}
	judgeTables(t, append(all, queuedAt{at: time.Now()})) // nothing waits when it is over
}

// queuedNow asks both at once.
func queuedNow(ctx context.Context, operator *client.Admin, id string) (one queuedAt, ok bool) {
	one.at = time.Now()
	var both sync.WaitGroup
	var found inspect.Receivers
	var waits inspect.Verification
	var err1, err2 error
	both.Go(func() { found, err1 = operator.Receivers(ctx) })
	both.Go(func() { err2 = operator.Ask(ctx, "GET", "/v1/verifications/"+id+"/waits", nil, &waits) })
	both.Wait()
	for _, r := range found.Receivers {
		one.receivers += r.Queued
	}
	for _, w := range waits.Waits {
		if w.For == inspect.ForReceiver {
			one.verification += w.Addresses
		}
	}
	return one, err1 == nil && err2 == nil
}

// judgeTables wants each number of one table to lie between those that the other has around
// that moment. That of a verification is two seconds old when it is told: what receivers have for
// less than that may be missing in it.
func judgeTables(t *testing.T, all []queuedAt) {
	t.Helper()
	most, judged, out := 0, 0, time.Time{}
	receivers := func(q queuedAt) int { return q.receivers }
	verification := func(q queuedAt) int { return q.verification }
	for _, q := range all {
		// Until its domain has told for the first time, the verification takes all to wait for DNS.
		if judged == 0 && q.verification == 0 {
			continue
		}
		judged++
		most = max(most, q.receivers, q.verification)
		if least, highest := around(all, q.at, receivers); q.verification < least || q.verification > highest {
			t.Errorf("after %s: rollcall verification has %d, and rollcall receivers %d to %d around then",
				q.at.Sub(all[0].at).Round(100*time.Millisecond), q.verification, least, highest)
		}
		least, highest := around(all, q.at, verification)
		switch {
		case q.receivers >= least && q.receivers <= highest:
			out = time.Time{}
		case out.IsZero():
			out = q.at
		case q.at.Sub(out) > tablesApart:
			t.Fatalf("after %s: rollcall receivers has %d for %s, and rollcall verification %d to %d around then",
				q.at.Sub(all[0].at).Round(100*time.Millisecond), q.receivers, q.at.Sub(out), least, highest)
		}
	}
	if judged < 30 || most < 40 {
		t.Fatalf("only %d looks, and at most %d waited: that shows nothing", judged, most)
	}
	t.Logf("%d looks in %s; at most %d waited", judged, all[len(all)-1].at.Sub(all[0].at).Round(time.Second), most)
}

// around gives the least and the most that a table has around a moment, and one more of each:
// something may be on its way.
func around(all []queuedAt, at time.Time, of func(q queuedAt) int) (least, most int) {
	least = math.MaxInt
	for _, other := range all {
		if other.at.Sub(at).Abs() <= tablesAround {
			least, most = min(least, of(other)), max(most, of(other))
		}
	}
	return least - 1, most + 1
}
