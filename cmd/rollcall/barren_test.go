package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

// TestReceiversThatAnswerNobody: a file with receivers that never give one answer ends by itself, though
// most of its addresses are never asked, because few at a time are at such a receiver.
func TestReceiversThatAnswerNobody(t *testing.T) {
	t.Parallel()
	kinds := []string{"hextensions", "hendlessrcpt", "dropgreeting", "droprcpt", "unreachable"}
	if effort.Long() {
		kinds = append(kinds, "silent") // a greeting is waited for a minute
	}
	n := labNode(t, t.TempDir(), io.Discard, func(c *config.Config) {
		openedWide(t, c, false)
		c.Retry.GiveUpAfter = config.Duration{Duration: 2 * time.Second}
	})
	const each = 300
	var file strings.Builder
	file.WriteString("email\n")
	for i := range each * len(kinds) {
		fmt.Fprintf(&file, "anna%d@x-%s.test\n", i, kinds[i%len(kinds)])
	}
	begun := time.Now()
	v := finish(t, n, submit(t, n, []byte(file.String()), ledger.Credits(each*len(kinds))), 2*cliWait)
	for email, r := range results(t, n, v) {
		if r.Outcome != smtp.Unknown {
			t.Errorf("%s is %v", email, r.Outcome)
		}
	}
	t.Logf("%d addresses are unknown after %.1f s", v.Rows, time.Since(begun).Seconds())
}
