package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"rollcall/actors/view"
)

// queuedAt is how many addresses wait for a receiver, as both tables say at one moment.
type queuedAt struct {
	at                      time.Time
	receivers, verification int
}

// What a domain counts is told to its verification every two seconds and summed each second,
// and told to its receiver within one or two: what one table says at a moment the other says
// at some moment of so long before or after it. The rest is for a busy machine.
const (
	tablesBefore = 5 * time.Second
	tablesAfter  = 3 * time.Second
)

// TestTheTwoTablesAgree for the whole life of a file at a slow receiver: half of its mailboxes
// put us off for two seconds, again and again, so that addresses that are due pile up behind
// what the receiver has been handed.
func TestTheTwoTablesAgree(t *testing.T) {
	aWholeNode(t)
	j := newJudged(t, `greylist_waits = ["2s"]
give_up_after = "18s"
[throttle.receivers."queued-clean.test"]
connections = 2
connection_rate = "50/s"
rcpt_rate = "15/s"
retry_waits = ["2s"]
`)
	ctx, cancel := context.WithTimeout(t.Context(), loadWait)
	defer cancel()
	var file bytes.Buffer
	file.WriteString("email\n")
	for i := range 120 {
		fmt.Fprintf(&file, "one.%s@queued-clean.test\noverquota.%s@queued-clean.test\n", letters(i), letters(i)[:min(5, len(letters(i)))])
	}
	token, err := readToken(filepath.Join(j.folder, "rollcall-data"))
	if err != nil {
		t.Fatal(err)
	}
	operator, c := newAdminClient(j.admin, token), j.client()
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
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			t.Fatalf("no end in sight: %+v", d)
		}
	}
	judgeTables(t, all)
}

// queuedNow asks both at once.
func queuedNow(ctx context.Context, operator *adminClient, id string) (one queuedAt, ok bool) {
	one.at = time.Now()
	var both sync.WaitGroup
	var found view.Receivers
	var waits view.Verification
	var err1, err2 error
	both.Go(func() { found, err1 = operator.receivers(ctx) })
	both.Go(func() { err2 = operator.ask(ctx, "GET", "/v1/verifications/"+id+"/waits", nil, &waits) })
	both.Wait()
	for _, r := range found.Receivers {
		one.receivers += r.Queued
	}
	for _, w := range waits.Waits {
		if w.For == view.ForReceiver {
			one.verification += w.Addresses
		}
	}
	return one, err1 == nil && err2 == nil
}

// judgeTables wants each number of one table to lie between those that the other has around
// that moment.
func judgeTables(t *testing.T, all []queuedAt) {
	t.Helper()
	most, far := 0, 0
	within := func(at time.Time, n int, of func(q queuedAt) int, name string) {
		least, highest := -1, -1
		for _, other := range all {
			if d := other.at.Sub(at); d >= -tablesBefore && d <= tablesAfter || d >= -tablesAfter && d <= tablesBefore {
				if v := of(other); least < 0 || v < least {
					least = v
				}
				highest = max(highest, of(other))
			}
		}
		if n < least-1 || n > highest+1 {
			if far++; far <= 5 {
				t.Errorf("after %s: %d wait, and %s has %d to %d around then", at.Sub(all[0].at).Round(100*time.Millisecond),
					n, name, least, highest)
			}
		}
	}
	judged := false
	for _, q := range all {
		// Until its domain has told for the first time, the verification takes all to wait for DNS.
		if judged = judged || q.verification > 0; !judged {
			continue
		}
		most = max(most, q.receivers, q.verification)
		within(q.at, q.receivers, func(q queuedAt) int { return q.verification }, "rollcall verification")
		within(q.at, q.verification, func(q queuedAt) int { return q.receivers }, "rollcall receivers")
	}
	if len(all) < 30 || most < 100 {
		t.Fatalf("only %d looks, and at most %d waited: that shows nothing", len(all), most)
	}
	t.Logf("%d looks in %s, %d of them apart; at most %d waited", len(all), all[len(all)-1].at.Sub(all[0].at).Round(time.Second),
		far, most)
}
