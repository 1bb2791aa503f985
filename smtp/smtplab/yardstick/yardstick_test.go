package yardstick_test

import (
	"context"
	"fmt"
	"testing"

	"rollcall/smtp/smtplab"
	"rollcall/smtp/smtplab/yardstick"
)

func startLab(t testing.TB) *smtplab.Lab {
	t.Helper()
	l, err := smtplab.Start(smtplab.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestEveryAddressIsAsked(t *testing.T) {
	l := startLab(t)
	for _, pipelined := range []bool{false, true} {
		perSecond, err := yardstick.Measure(l, 4, 400, pipelined)
		if err != nil || perSecond <= 0 {
			t.Fatalf("pipelined %v: %v per s, %v", pipelined, perSecond, err)
		}
	}
	total := l.Manners().Total
	if total.Rcpts != 800 || total.Accepted != 800 || total.UnaskedGroups != 0 {
		t.Errorf("manners of two runs of 400: %+v", total)
	}
}

// BenchmarkBareLoop is the bare loop that the engine's speed is a ratio of.
func BenchmarkBareLoop(b *testing.B) {
	for _, conns := range []int{1, 16} {
		for _, pipelined := range []bool{false, true} {
			b.Run(fmt.Sprintf("conns=%d/pipelined=%v", conns, pipelined), func(b *testing.B) {
				l := startLab(b)
				b.ReportAllocs()
				perSecond, err := yardstick.Measure(l, conns, max(b.N, conns), pipelined)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(perSecond, "rcpt/s")
			})
		}
	}
}
