package main

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"rollcall/config"
	"rollcall/smtp/smtplab/yardstick"
)

// cleanFile makes a file of n addresses spread over domains that answer honestly
// and at once; one in five does not exist.
func cleanFile(n, domains int) []byte {
	var b bytes.Buffer
	b.WriteString("email\n")
	for i := range n {
		name := "anna"
		if (i+i/domains)%5 == 4 { // not all of them at the same domains
			name = "ghost"
		}
		fmt.Fprintf(&b, "%s.m%s@d%d-clean.test\n", name, yardstick.Letters(i/domains), i%domains)
	}
	return b.Bytes()
}

// letters spells a number, so that the lab knows the mailbox.
func letters(n int) string { return yardstick.Letters(n) }

// BenchmarkEngine is the whole engine on one node, DNS, actors, SMTP, control
// probes and settlement on SQLite, against the bare SMTP loop of 16 kept
// connections without PIPELINING, measured in turn with it. One iteration is
// 200,000 addresses over 2,000 domains:
//
//	go test ./cmd/rollcall -run - -bench Engine -benchtime 3x
func BenchmarkEngine(b *testing.B) {
	for _, pipelining := range []bool{false, true} {
		b.Run(fmt.Sprintf("pipelining=%v", pipelining), func(b *testing.B) { benchmarkEngine(b, pipelining) })
	}
}

func benchmarkEngine(b *testing.B, pipelining bool) {
	const addresses, domains = 200_000, 2_000
	file := cleanFile(addresses, domains)
	var engine, bare float64
	for range b.N {
		n := labNode(b, filepath.Join(b.TempDir(), "data"), io.Discard,
			func(c *config.Config) { openedWide(b, c, pipelining) })
		loop, err := yardstick.Measure(n.lab, 16, 100_000, false)
		if err != nil {
			b.Fatal(err)
		}
		v := submit(b, n, file, addresses)
		began := time.Now()
		v = finish(b, n, v, 5*time.Minute)
		rate := addresses / time.Since(began).Seconds()
		if v.Counts.Valid+v.Counts.Invalid != addresses {
			b.Fatalf("wrong outcomes: %+v", v.Counts)
		}
		engine, bare = engine+rate, bare+loop
		if err := n.Stop(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(engine/float64(b.N), "addresses/s")
	b.ReportMetric(bare/float64(b.N), "bare/s")
	b.ReportMetric(engine/bare, "ratio")
	b.ReportMetric(0, "ns/op")
}
