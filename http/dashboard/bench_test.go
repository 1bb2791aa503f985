package dashboard_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"rollcall/ledger"
	"rollcall/smtp"
)

// BenchmarkPages measures whole requests by a socket: a page of 50 verifications, a page of 100 results, and a part
// that is asked for again and has not changed. p99-ms is what one of a hundred took at least.
func BenchmarkPages(b *testing.B) {
	g := newRig(b)
	all := make([]ledger.Result, 100)
	for i := range all {
		all[i] = result(int64(i), fmt.Sprintf("name-%d@acme.test", i), smtp.Valid, smtp.MailboxExists)
	}
	v := g.verification("open.csv", 200, all...)
	for i := range 60 {
		g.create(fmt.Sprintf("list-%d.csv", i), 10)
	}
	viewer := g.as["viewer"]
	base := g.path("/verifications/" + v.ID.String())
	tag := viewer.get(base + "/live").header.Get("ETag")
	for _, c := range []struct {
		name, path string
		header     []string
		want       int
	}{
		{"list", g.path(""), nil, 200},
		{"results", base + "/results", nil, 200},
		{"unchanged", base + "/live", []string{"If-None-Match", tag}, 304},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				at := time.Now()
				if a := viewer.send("GET", c.path, nil, c.header...); a.status != c.want {
					b.Fatalf("%s: %d", c.path, a.status)
				}
				took = append(took, time.Since(at))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
