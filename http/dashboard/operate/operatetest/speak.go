package operatetest

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/http/admin"
	"rollcall/ledger"
)

// Speak has all others say a text from now on, wherever something of theirs is shown: receivers in their replies, DNS in
// names, an operator in reasons, and customers, of whom a new one has it for the name of the workspace and of the file that
// is Open. The text has at most 900 bytes, so that the books keep it.
func (g *Rig) Speak(t testing.TB, text string) {
	t.Helper()
	ctx := ledger.WithAuthor(t.Context(), text)
	name := ledger.CleanName(text)
	w, err := g.book.CreateWorkspace(ctx, uuid.New(), name)
	if err == nil {
		_, err = g.book.Grant(ctx, uuid.New(), w.ID, 1000, text)
	}
	if err == nil {
		g.Workspace = w
		g.Open, _, err = g.book.Create(ctx, ledger.NewVerification{ID: uuid.New(), Workspace: w.ID, Identity: uuid.New(),
			Filename: text, Bytes: 64, BytesMax: 1 << 20, UploadExpiry: time.Hour,
			Limits: ledger.Limits{Open: 5, Stored: 1 << 30, Unpaid: 1 << 30}})
	}
	if err == nil {
		g.Override, err = g.book.SetOverride(ctx, ledger.ThrottleOverride{ID: uuid.New(), Key: "mx.slow.test",
			Fields: map[string]string{"rcpt_rate": "1/s"}, Reason: text}, time.Hour)
	}
	if err == nil {
		said := strings.ToValidUTF8(name[:min(len(name), sayMax)], "")
		err = g.fillAccess(ctx, "abcdefgh6789", said, "speaker@acme.test", said)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.words = text
}

// sayMax bounds the label of the key and the name of the owner, in bytes.
const sayMax = 200

// say is what others say: the words of Speak, else what the rig has.
func (g *Rig) say(text string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return cmp.Or(g.words, text)
}

// identity is finding in those words.
func (g *Rig) identity() admin.Identity {
	found := finding()
	found.Why = g.say(found.Why)
	for i := range found.Findings {
		found.Findings[i].Saw = g.say(found.Findings[i].Saw)
	}
	return found
}

// speaker is the survey of a rig, in which all others say what they were told.
type speaker struct{ *Rig }

// Receivers says it in the last word of each.
func (s speaker) Receivers(ctx context.Context) (inspect.Receivers, error) {
	found, err := s.Rig.Receivers(ctx)
	for i := range found.Receivers {
		found.Receivers[i].Last.Text = s.say(found.Receivers[i].Last.Text)
	}
	return found, err
}

// Receiver says it in every reply, in what was learned and in the name of a host.
func (s speaker) Receiver(ctx context.Context, key string) ([]inspect.ReceiverDetail, error) {
	found, err := s.Rig.Receiver(ctx, key)
	for _, d := range found {
		for i := range d.Firings {
			d.Firings[i].Text = s.say(d.Firings[i].Text)
		}
		for i := range d.Learned {
			d.Learned[i].From = s.say(d.Learned[i].From)
		}
		for i := range d.SessionList {
			d.SessionList[i].Host = s.say(d.SessionList[i].Host)
		}
	}
	for i := range found {
		found[i].Last.Text = s.say(found[i].Last.Text)
	}
	return found, err
}

// Sources says it in the reason for which one rests.
func (s speaker) Sources(ctx context.Context) ([]inspect.Source, []inspect.UnreachableNode, error) {
	found, silent, err := s.Rig.Sources(ctx)
	for i := range found {
		if found[i].Reason != "" {
			found[i].Reason = s.say(found[i].Reason)
		}
	}
	return found, silent, err
}

// Trace says it in every line.
func (s speaker) Trace(ctx context.Context, key, node string, after map[string]uint64) ([]inspect.TraceLine, error) {
	found, err := s.Rig.Trace(ctx, key, node, after)
	for i := range found {
		found[i].Line = s.say(found[i].Line)
	}
	return found, err
}
