package receiver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
)

// saying makes what a receiver said.
func saying(text string) *verdictOf {
	told := judgedAt(begin, "mx1.example", smtp.Address{}, &smtp.Failure{Stage: smtp.StageRcpt,
		Reply: smtp.Reply{Code: 550, Enhanced: smtp.EnhancedCode{5, 1, 1}, Lines: []string{text}}})
	return &told
}

func TestTheRecordCountsWhatWasAskedAndSaid(t *testing.T) {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 10, Per: time.Second}
	w := newWorld(t, a, 1)
	w.reply = tenths()
	w.fill(2)
	w.run(begin.Add(10 * time.Minute))
	living := w.desk.options.Living
	w.desk.unobserve(w.now) // the desk goes, the record stays
	got, whole := living.Record(w.now, "", 1<<20)
	if !whole || len(got.Receivers) != 1 {
		t.Fatalf("%d receivers, whole is %v", len(got.Receivers), whole)
	}
	r := got.Receivers[0]
	asked, answers, heard := 0, 0, 0
	for _, m := range r.Minutes {
		asked += m.Asked
		answers += m.Accepted + m.Refused + m.Deferred
	}
	said := map[string]int{}
	for _, h := range r.Replies {
		heard += h.Times
		said[fmt.Sprintf("%d %s %s", h.Code, h.Text, h.Did)] += h.Times
	}
	if r.Key != "example" || r.Domain != "domain-0.example" || asked != len(w.rcpts) || answers != asked || heard != asked {
		t.Errorf("%s, %s: %d asked of %d, %d answers, %d heard", r.Key, r.Domain, asked, len(w.rcpts), answers, heard)
	}
	if said["550 ~ unknown user invalid"] < 49 || said["452 mailbox full retry"] < 49 || len(r.Replies) > 3 || r.Lost > 0 {
		t.Errorf("it heard %v and lost %d", said, r.Lost)
	}
	if r.Minutes[0].Opened < 1 || r.Minutes[0].Sessions < 1 || r.Minutes[0].Queued < 300 {
		t.Errorf("the first minute is %+v", r.Minutes[0])
	}
}

func TestARecordIsBounded(t *testing.T) {
	var all records
	r := all.open("example", begin, true)
	now := begin.Truncate(time.Hour)
	for range heardMax + 7 {
		r.say(now, saying("x"), fmt.Sprintf("text %d", len(r.texts)+r.lost))
	}
	if len(r.texts) != heardMax || r.lost != 7 {
		t.Errorf("%d texts in an hour and %d lost, want %d and 7", len(r.texts), r.lost, heardMax)
	}
	for i := range 3 * recordMinutes { // hours later
		r.minute(now.Add(time.Duration(i)*time.Minute)).asked++
	}
	if len(r.minutes) != recordMinutes {
		t.Errorf("%d minutes are kept, want %d", len(r.minutes), recordMinutes)
	}
	if len(r.texts) != 0 || len(r.hours) != 0 || all.bytes.Load() != 0 {
		t.Errorf("%d texts of %d hours are left, %d bytes", len(r.texts), len(r.hours), all.bytes.Load())
	}
	all.bytes.Store(heardBytesMax - 10)
	if r.say(now, saying("x"), "more"); len(r.texts) != 0 {
		t.Error("there is no room for texts, and one was kept")
	}
}

func TestRecordsOfReceiversThatAreGoneMakeRoom(t *testing.T) {
	var all records
	for i := range recordsMax {
		all.open(fmt.Sprint(i), begin.Add(time.Duration(i)*time.Second), true)
	}
	if all.open("more", begin, true) != nil || all.open("more", begin, false) != nil || all.dropped != 1 {
		t.Fatalf("a record more than there is room for, %d dropped", all.dropped)
	}
	all.of["7"].close(begin.Add(time.Minute))
	all.of["3"].close(begin.Add(2 * time.Minute))
	if all.open("more", begin, true) == nil || all.of["7"] != nil || all.of["3"] == nil {
		t.Error("not the one that was used least recently made room")
	}
	if again := all.open("3", begin, true); again == nil || again.desks != 1 {
		t.Error("a receiver that comes back has lost its record")
	}
	if len(all.of) != recordsMax {
		t.Errorf("%d records", len(all.of))
	}
}

func TestARecordIsReadInPages(t *testing.T) {
	l := NewLiving()
	for i := range 50 {
		r := l.records.open(fmt.Sprintf("%02d", i), begin, true)
		r.minute(begin).asked = 1
	}
	seen, pages, after := map[string]bool{}, 0, ""
	for whole := false; !whole; pages++ {
		page, last := l.Record(begin, after, 1000)
		for _, r := range page.Receivers {
			if seen[r.Key] {
				t.Errorf("%s comes twice", r.Key)
			}
			seen[r.Key], after = true, r.Key
		}
		whole = last
	}
	if len(seen) != 50 || pages < 5 {
		t.Errorf("%d receivers in %d pages", len(seen), pages)
	}
}

func TestLocalPartsAreTakenOutOfTexts(t *testing.T) {
	for _, c := range []struct{ text, local, want string }{
		{"jsmith unknown user", "JSmith", "~ unknown user"},
		{"user jsmith, jsmith: unknown", "jsmith", "user ~, ~: unknown"},
		{"jsmithson unknown", "jsmith", "jsmithson unknown"},
		{"user unknown", "user", "user unknown"},
		{"no such mailbox", "a", "no such mailbox"},
		{"mailbox john unknown", "john+news", "mailbox ~ unknown"},
		{"john+news: john", "John+News", "~: ~"},
		{"user bob, bob=list", "bob=list", "user ~, ~"},
		{"user johnsmith not found", "john.smith", "user ~ not found"},
		{"john smith has left", "john_smith", "~ has left"},
		{"johnsmith has left", "john.smith+x", "~ has left"},
		{"user o\\'brien unknown", "o'brien", "user ~ unknown"},
		{"o%27brien or o=27brien", "o'brien", "~ or ~"},
		{"j%25smith unknown", "j%smith", "~ unknown"},
		{"john%2bnews, john=2bnews", "john+news", "~, ~"},
		{"müller, muller, mueller", "Müller", "~, ~, ~"},
		{"m=c3=bcller, m%c3%bcller", "müller", "~, ~"},
		{"oezil, ozil", "özil", "~, ~"},
		{"user name unknown", "user+x", "user name unknown"},
		{"johnson smithers", "john.smith", "johnson smithers"},
		{"no user", "no.user", "~"},
		{"ok", "", "ok"},
		{"", "x", ""},
	} {
		if got := scrub(c.text, c.local); got != c.want {
			t.Errorf("%q without %q is %q, want %q", c.text, c.local, got, c.want)
		}
	}
}

func BenchmarkRecordSay(b *testing.B) {
	var all records
	r := all.open("example", begin, true)
	told := saying("no such user")
	text := strings.Repeat("no such user here, sorry; ", 4)
	b.ReportAllocs()
	for b.Loop() {
		r.mu.Lock()
		r.minute(begin).refused++
		r.say(begin, told, scrub(text, "anna.schmidt"))
		r.mu.Unlock()
	}
}

func BenchmarkSeen(b *testing.B) {
	w := newWorld(b, openedWide(), 1)
	d := w.desk
	t := &task{}
	p := &probe{chunk: &chunk{task: t}, address: smtp.Address{Local: "anna.schmidt", Domain: "example.net"}}
	one := answered{probe: p, at: begin, sent: begin}
	one.told = verdictOf{attempt: evidence.Attempt{Code: 250, Stage: smtp.StageRcpt, Text: "ok", Host: "mx1.example"}}
	one.told.verdict.Outcome = smtp.Valid
	r := report{answered: []answered{one}}
	s := &session{}
	b.ReportAllocs()
	for b.Loop() {
		d.seen(begin, s, &r)
	}
}
