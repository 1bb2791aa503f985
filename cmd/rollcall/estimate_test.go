package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
)

// estimateRun is a list for the lab of which the node is asked when it will be done.
type estimateRun struct {
	name     string
	settings string
	file     []byte
}

// estimateShort has waits that end while somebody looks on.
const estimateShort = `
[retry]
greylist_waits = ["2s", "4s", "8s"]
give_up_after = "2m"
[throttle.default]
connections = 2
rcpt_rate = "5/s"
`

func estimateRuns() []estimateRun {
	var grey, everyday bytes.Buffer
	grey.WriteString("email\n")
	everyday.WriteString("email\n")
	for i := range 200 {
		fmt.Fprintf(&grey, "one.%s@shop%d-%s.test\n", letters(i), i%20, []string{"greylist", "quietgrey"}[i%2])
	}
	kinds := []string{"clean", "catchall", "slow", "onercpt", "starttls", "short", "postfix", "quietgrey"}
	for i := range 400 {
		domain := fmt.Sprintf("own%d-%s.test", i%96, kinds[i%len(kinds)])
		if i%2 == 0 {
			domain = fmt.Sprintf("provider%d-clean.test", i%4)
		}
		fmt.Fprintf(&everyday, "one.%s@%s\n", letters(i), domain)
	}
	return []estimateRun{
		{"a receiver of 5 a second", estimateShort, goodFile("provider-clean.test", "one", 600)},
		{"greylisting, short waits", estimateShort, grey.Bytes()},
		{"everyday", estimateShort, everyday.Bytes()},
	}
}

// TestEstimateOfRealRuns logs how good the finish was that a node expected, at several parts of
// runs against the lab. Nothing fails by it: how fast a machine is, is no fault. Lists of
// more kinds run in simulated time in actors/verification.
func TestEstimateOfRealRuns(t *testing.T) {
	if !effort.Long() {
		t.Skip("takes minutes: run it with -long")
	}
	for _, run := range estimateRuns() {
		t.Run(run.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), loadWait)
			defer cancel()
			run.measure(ctx, newJudged(t, run.settings))
		})
	}
}

func (e estimateRun) measure(ctx context.Context, j *trialRig) {
	j.t.Helper()
	type expected struct{ at, finish time.Time }
	c := j.client()
	token, err := client.ReadToken(filepath.Join(j.folder, "rollcall-data"))
	if err != nil {
		j.t.Fatal(err)
	}
	operator := client.NewAdmin(j.admin, token)
	began := time.Now()
	id := j.submit(ctx, c, e.file)
	var all []expected
	for {
		d, err := look(ctx, c, id)
		if err != nil {
			j.t.Fatal(err)
		}
		if d.CompletedAt != nil {
			break
		}
		var v inspect.Verification
		if operator.Ask(ctx, "GET", "/v1/verifications/"+id+"/waits", nil, &v) == nil {
			all = append(all, expected{time.Now(), v.Finish})
		}
		if err := term.Sleep(ctx, 250*time.Millisecond); err != nil {
			j.t.Fatalf("no end in sight: %+v", d)
		}
	}
	ended := time.Now()
	line := fmt.Sprintf("%-28s %6.0f s:", e.name, ended.Sub(began).Seconds())
	for _, part := range []float64{0.1, 0.25, 0.5, 0.75} {
		at, said := began.Add(time.Duration(part*float64(ended.Sub(began)))), " unknown"
		for _, x := range all {
			if x.at.After(at) {
				break
			}
			if said = " unknown"; !x.finish.IsZero() {
				said = fmt.Sprintf(" %.2f", float64(x.finish.Sub(x.at))/float64(ended.Sub(x.at)))
			}
		}
		line += fmt.Sprintf("  at %.0f %%%s", 100*part, said)
	}
	j.t.Log(line)
	if len(all) == 0 {
		j.t.Error("the node never said what is expected")
	}
}
