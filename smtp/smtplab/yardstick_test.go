package smtplab

import (
	"fmt"
	"testing"
)

func TestYardstickAsksEveryAddress(t *testing.T) {
	l := startLab(t, nil)
	for _, pipelined := range []bool{false, true} {
		perSecond, err := Yardstick(l, 4, 400, pipelined)
		if err != nil || perSecond <= 0 {
			t.Fatalf("Yardstick pipelined %v: %v per s, %v", pipelined, perSecond, err)
		}
	}
	total := l.Manners().Total
	if total.Rcpts != 800 || total.Accepted != 800 || total.UnaskedGroups != 0 {
		t.Errorf("manners of two runs of 400: %+v", total)
	}
}

// BenchmarkYardstick is the bare loop that the engine's speed is a ratio of.
func BenchmarkYardstick(b *testing.B) {
	for _, conns := range []int{1, 16} {
		for _, pipelined := range []bool{false, true} {
			b.Run(fmt.Sprintf("conns=%d/pipelined=%v", conns, pipelined), func(b *testing.B) {
				l := startLab(b, nil)
				b.ReportAllocs()
				n := max(b.N, conns)
				perSecond, err := Yardstick(l, conns, n, pipelined)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(perSecond, "rcpt/s")
			})
		}
	}
}
