package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"rollcall/cmd/rollcall/node"
	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
)

// Hostile receivers beside honest ones: the honest are answered, and the node's memory
// is bounded by what its sessions may hold.

// hostileKinds hold a session as long as they can, or send as much as they can.
var hostileKinds = []string{"hsilent", "silenthello", "silentmail", "silentrcpt", "hstutter", "hendless",
	"hendlessline", "hwindow", "hlong", "hextensions", "hstall", "hflood", "hrandom", "hecho"}

// hostileWorld says how many there are.
type hostileWorld struct {
	files, perFile int           // hostile domains, with one address each
	wait           time.Duration // for the honest file
	memory         int64         // of the node at its peak
}

// The bound of memory is what an idle node takes and 128 KiB for each session that a
// node may have open: a guess of twice the former.
const hostileIdle = 160 << 20

func TestHonestReceiversBesideHostileOnes(t *testing.T) {
	t.Parallel()
	w := hostileWorld{files: 2, perFile: 150, wait: cliWait, memory: hostileIdle + 300*128<<10}
	if effort.Long() {
		w = hostileWorld{files: 10, perFile: 1000, wait: 10 * time.Minute, memory: hostileIdle + node.SessionsMax*128<<10}
	}
	o := smtplab.Defaults()
	o.HostsMax, o.SessionsMax = w.files*w.perFile+1000, 2*node.SessionsMax
	lab := startLab(t, o)
	r := newRig(t, lab.DNSAddr(), lab.SMTPPort(), `
[retry]
greylist_waits = ["5s"]
give_up_after = "1m"
`)
	node := r.serves()
	ctx, cancel := context.WithTimeout(t.Context(), w.wait)
	defer cancel()
	r.open(1_000_000)
	c := r.client()
	for i := range w.files {
		var file bytes.Buffer
		file.WriteString("email\n")
		for j := range w.perFile {
			fmt.Fprintf(&file, "anna.adler@x%d-%d-%s.test\n", i, j, hostileKinds[j%len(hostileKinds)])
		}
		mustHandIn(ctx, t, c, file.Bytes())
	}
	least := min(w.files*w.perFile/2, 900) // a workspace may have half of the receivers
	await(ctx, t, "sessions at hostile receivers", func() bool { return lab.Manners().Total.SessionsOpen >= least })
	open := lab.Manners().Total.SessionsOpen
	honest := cleanFile(200, 20)
	id := mustHandIn(ctx, t, c, honest)
	took := awaitEnd(ctx, t, c, id)
	var text bytes.Buffer
	effort.OK(t, writeResults(ctx, c, id, &text))
	rows := effort.Must(readRows(&text))(t)
	for _, email := range strings.Fields(string(honest))[1:] {
		effort.Is(t, rows[email].outcome, lab.Truth(email).Outcome, email)
	}
	peak, err := memoryMost(node.command.Process.Pid)
	if err != nil || peak > w.memory {
		t.Errorf("the node took %d MB, want at most %d MB: %v", peak>>20, w.memory>>20, err)
	}
	t.Logf("%d hostile receivers, %d sessions held when 200 honest addresses came: answered in %.1f s, "+
		"the node's peak is %d MB", w.files*w.perFile, open, took.Seconds(), peak>>20)
	node.terminate()
}

// TestReceiversThatAnswerNobody: a file with receivers that never give one answer ends by itself, though
// most of its addresses are never asked, because few at a time are at such a receiver.
func TestReceiversThatAnswerNobody(t *testing.T) {
	t.Parallel()
	kinds := []string{"hextensions", "hendlessrcpt", "dropgreeting", "droprcpt", "unreachable"}
	if effort.Long() {
		kinds = append(kinds, "silent") // a greeting is waited for a minute
	}
	n := labNode(t, t.TempDir(), func(c *config.Config) {
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
		effort.Is(t, r.Outcome, smtp.Unknown, fmt.Sprintf("%s is", email))
	}
	t.Logf("%d addresses are unknown after %.1f s", v.Rows, time.Since(begun).Seconds())
}

// unfolded puts a text on one line.
func unfolded(text string) string { return strings.Join(strings.Fields(text), " ") }
