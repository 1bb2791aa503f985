package throttle

import (
	"fmt"
	"time"
)

func (t *AdaptiveRate) Debug(now time.Time) string {
	return fmt.Sprintf("good %.2f step %.3f proof %s credit %.1f cost %.1f trials %d gap %s heard %d other %d began %s dear %s strikes %d", t.good, t.step, t.proof, t.credit, t.cost, t.trials, t.gap.Sub(now).Round(time.Second), t.heard, t.other, now.Sub(t.began).Round(time.Second), t.dear, t.strikes)
}
