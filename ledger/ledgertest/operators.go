package ledgertest

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
)

var operators = []exercise{
	{"an override holds", 0, sets},
	{"an override sent again is the same", 0, setsAgain},
	{"an override ends by itself", 0, setsForASecond},
	{"overrides that nobody can keep", 0, badOverrides},
	{"the longest override", 0, longestOverride},
	{"overrides are cleared by key, by id and by field", 0, clears},
	{"the weight of a workspace", 0, weighs},
	{"who did what, newest first", 0, pagesLog},
	{"lines of one millisecond", 0, pagesWithinAMillisecond},
	{"notes that nobody can keep", 0, badNotes},
	{"who did it", 0, authors},
}

// Halves is an override of some key for an hour.
func Halves(key string) ledger.ThrottleOverride {
	return ledger.ThrottleOverride{ID: uuid.New(), Key: key, Fields: map[string]string{"rate": "5/s"},
		Reason: "complaints"}
}

// Overrides sets an override for a time.
func (d *Fixture) Overrides(o ledger.ThrottleOverride, holds time.Duration) ledger.ThrottleOverride {
	d.T.Helper()
	return effort.Must(d.SetOverride(d.T.Context(), o, holds))(d.T)
}

// tunes reads the settings that every node follows.
func (d *Fixture) tunes() ledger.Settings {
	d.T.Helper()
	return effort.Must(d.Settings(d.T.Context()))(d.T)
}

// hold fails the test unless just these overrides hold.
func (d *Fixture) hold(want ...ledger.ThrottleOverride) {
	d.T.Helper()
	got := d.tunes().Overrides
	effort.ErrorIf(d.T, len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want),
		"overrides: got %+v, want %+v", got, want)
}

// logged returns the lines of an action, newest first, without ids and times.
func (d *Fixture) logged(action string) (lines []ledger.LogLine) {
	d.T.Helper()
	list := effort.Must(d.OperatorLog(d.T.Context(), ledger.LogQuery{Limit: ledger.LogLinesMax}))(d.T)
	for _, l := range list {
		effort.ErrorIf(d.T, l.ID == uuid.Nil || l.At.IsZero(), "a line without id or time: %+v", l)
		if l.Action == action {
			l.ID, l.At = uuid.Nil, time.Time{}
			lines = append(lines, l)
		}
	}
	return lines
}

// wrote fails the test unless the log has exactly these lines of an action, newest first.
func (d *Fixture) wrote(action string, want ...ledger.LogLine) {
	d.T.Helper()
	for i := range want {
		want[i].Action = action
	}
	effort.Equal(d.T, d.logged(action), want, "log", action)
}

// ends returns the text of a log line for an override's end.
func ends(o ledger.ThrottleOverride) string { return " until " + o.Expires.Format(time.RFC3339) }

func sets(d *Fixture) {
	ctx := ledger.WithAuthor(d.T.Context(), "ada")
	before := d.tunes()
	effort.ErrorIf(d.T, before.Now.IsZero() || len(before.Overrides)+len(before.Weights) != 0 || before.Weights == nil,
		"of a new ledger: %+v", before)
	o := Halves("mx:example.net")
	o.Fields["sessions"] = "2"
	first := effort.Must(d.SetOverride(ctx, o, Hour))(d.T)
	o.Author, o.Created, o.Expires = "ada", first.Created, first.Created.Add(Hour)
	effort.ErrorIf(d.T, !reflect.DeepEqual(first, o) || first.Created.Before(before.Now) ||
		first.Created.After(d.tunes().Now), "got %+v, want %+v", first, o)
	d.nextMillisecond(first.Created)
	second := d.Overrides(ledger.ThrottleOverride{ID: uuid.UUID{1}, Key: o.Key, Reason: "more",
		Fields: map[string]string{"sessions": "1", "pause": "yes"}}, 2*Hour)
	d.nextMillisecond(second.Created)
	o = Halves("other.test")
	o.Fields["rate"] = "7/s"
	other := d.Overrides(o, Hour)
	d.nextMillisecond(other.Created)
	third := d.Overrides(ledger.ThrottleOverride{ID: uuid.New(), Key: first.Key,
		Fields: map[string]string{"rate": "1/s", "sessions": "3"}}, Hour)
	d.hold(first, second, other, third)
	d.wrote("throttle set",
		ledger.LogLine{Subject: first.Key, Old: "rate=5/s sessions=1", New: "rate=1/s sessions=3" + ends(third)},
		ledger.LogLine{Subject: "other.test", New: "rate=7/s" + ends(other), Reason: "complaints"},
		ledger.LogLine{Subject: first.Key, Old: "sessions=2", New: "pause=yes sessions=1" + ends(second), Reason: "more"},
		ledger.LogLine{Author: "ada", Subject: first.Key, New: "rate=5/s sessions=2" + ends(first), Reason: "complaints"})
}

func setsAgain(d *Fixture) {
	o := Halves("example.net")
	first := d.Overrides(o, Hour)
	o.Reason = "said otherwise"
	again := effort.Must(d.SetOverride(ledger.WithAuthor(d.T.Context(), "eve"), o, 2*Hour))(d.T)
	effort.Same(d.T, again, first)
	key, fields, more := o, o, o
	key.Key, fields.Fields = "other.test", map[string]string{"rate": "6/s"}
	more.Fields = map[string]string{"rate": "5/s", "pause": "yes"}
	for what, other := range map[string]ledger.ThrottleOverride{"key": key, "value": fields, "field": more} {
		denied(d.SetOverride(d.T.Context(), other, Hour))(d, ledger.ErrIllegal, "the id with another "+what)
	}
	d.hold(first)
	effort.Must(d.ClearOverrides(d.T.Context(), ledger.Clearing{Key: o.Key}))(d.T)
	denied(d.SetOverride(d.T.Context(), o, Hour))(d, ledger.ErrIllegal, "the id of what was cleared")
	d.hold() // what was cleared stays so
	d.wrote("throttle set", ledger.LogLine{Subject: o.Key, New: "rate=5/s" + ends(first), Reason: "complaints"})
}

func setsForASecond(d *Fixture) {
	stays := d.Overrides(Halves("example.net"), Hour)
	short := d.Overrides(Halves("example.net"), ledger.OverrideMin)
	effort.Is(d.T, short.Expires.Sub(short.Created), ledger.OverrideMin, "holds for")
	poll := time.Tick(20 * time.Millisecond)
	for begun, seen := time.Now(), false; ; <-poll {
		t := d.tunes()
		holds := slices.ContainsFunc(t.Overrides, func(o ledger.ThrottleOverride) bool { return o.ID == short.ID })
		over := !t.Now.Before(short.Expires)
		seen = seen || holds
		effort.FatalIf(d.T, over && holds, "holds at %v, until %v", t.Now, short.Expires)
		if over && !seen {
			d.T.Log("the test was too slow to see it hold")
		}
		if over {
			break
		}
		effort.FatalIf(d.T, time.Since(begun) > time.Minute, "the ledger's clock stands")
	}
	again := ledger.ThrottleOverride{ID: short.ID, Key: short.Key, Fields: short.Fields}
	denied(d.SetOverride(d.T.Context(), again, Hour))(d, ledger.ErrIllegal, "the id of what is over")
	d.hold(stays)
	ended := effort.Must(d.ClearOverrides(d.T.Context(), ledger.Clearing{Key: "example.net"}))(d.T)
	effort.ErrorIf(d.T, len(ended) != 1 || ended[0].ID != stays.ID, "cleared %+v", ended)
	// Nothing is said about ended overrides: neither that they held before, nor that they ended.
	d.Overrides(Halves("example.net"), Hour)
	lines := d.logged("throttle set")
	effort.ErrorIf(d.T, len(lines) != 3 || lines[0].Old != "" || lines[1].Old != "rate=5/s", "log: %+v", lines)
}

func badOverrides(d *Fixture) {
	long, longer := strings.Repeat("x", ledger.OperatorTextMax), strings.Repeat("x", ledger.OperatorTextMax+1)
	good := Halves("example.net")
	for name, c := range map[string]struct {
		spoil func(o *ledger.ThrottleOverride)
		holds time.Duration
	}{
		"no id":               {func(o *ledger.ThrottleOverride) { o.ID = uuid.Nil }, Hour},
		"no key":              {func(o *ledger.ThrottleOverride) { o.Key = "" }, Hour},
		"a long key":          {func(o *ledger.ThrottleOverride) { o.Key = longer }, Hour},
		"NUL in a key":        {func(o *ledger.ThrottleOverride) { o.Key = "a\x00" }, Hour},
		"a long reason":       {func(o *ledger.ThrottleOverride) { o.Reason = longer }, Hour},
		"a reason cut off":    {func(o *ledger.ThrottleOverride) { o.Reason = "a\xe2\x82" }, Hour},
		"no fields":           {func(o *ledger.ThrottleOverride) { o.Fields = nil }, Hour},
		"a field of no name":  {func(o *ledger.ThrottleOverride) { o.Fields = map[string]string{"": "1"} }, Hour},
		"a field cut off":     {func(o *ledger.ThrottleOverride) { o.Fields = map[string]string{"a\xe2": "1"} }, Hour},
		"NUL in a value":      {func(o *ledger.ThrottleOverride) { o.Fields = map[string]string{"rate": "\x00"} }, Hour},
		"long fields":         {func(o *ledger.ThrottleOverride) { o.Fields = map[string]string{"a": long} }, Hour},
		"for less than a bit": {func(*ledger.ThrottleOverride) {}, ledger.OverrideMin - time.Millisecond},
		"for too long":        {func(*ledger.ThrottleOverride) {}, ledger.OverrideMax + time.Millisecond},
	} {
		bad := good
		bad.Fields = maps.Clone(good.Fields)
		c.spoil(&bad)
		denied(d.SetOverride(d.T.Context(), bad, c.holds))(d, ledger.ErrIllegal, name)
	}
	for _, author := range []string{longer, "a\x00"} {
		denied(d.SetOverride(ledger.WithAuthor(d.T.Context(), author), good, Hour))(d, ledger.ErrIllegal)
	}
	for _, c := range []ledger.Clearing{{}, {Only: "rate"}, {Key: "a", Reason: longer}, {Key: "a", Reason: "a\x00"}} {
		denied(d.ClearOverrides(d.T.Context(), c))(d, ledger.ErrIllegal)
	}
	d.hold()
	d.wrote("throttle set")
}

func longestOverride(d *Fixture) {
	text := strings.Repeat("é", ledger.OperatorTextMax/2)
	o := ledger.ThrottleOverride{ID: uuid.New(), Key: text, Reason: text, Author: "is filled in",
		Fields: map[string]string{"a": text[:600], "b": text[600 : ledger.OperatorTextMax-2]}}
	kept := effort.Must(d.SetOverride(ledger.WithAuthor(d.T.Context(), text), o, ledger.OverrideMax))(d.T)
	effort.ErrorIf(d.T, kept.Author != text || kept.Expires.Sub(kept.Created) != ledger.OverrideMax,
		"by %q, from %v to %v", kept.Author, kept.Created, kept.Expires)
	d.hold(kept)
	ended := effort.Must(d.ClearOverrides(d.T.Context(), ledger.Clearing{ID: o.ID, Reason: text}))(d.T)
	effort.ErrorIf(d.T, len(ended) != 1 || !reflect.DeepEqual(ended[0], kept), "cleared %+v", ended)
}

func clears(d *Fixture) {
	ctx := ledger.WithAuthor(d.T.Context(), "ada")
	clear := func(c ledger.Clearing, want ...ledger.ThrottleOverride) {
		d.T.Helper()
		got := effort.Must(d.ClearOverrides(ctx, c))(d.T)
		effort.ErrorIf(d.T, len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want),
			"%+v: cleared %+v, want %+v", c, got, want)
	}
	var list []ledger.ThrottleOverride
	for i, o := range []ledger.ThrottleOverride{Halves("a.test"), Halves("a.test"), Halves("a.test"),
		Halves("b.test"), Halves("b.test")} {
		switch i {
		case 1:
			o.Fields = map[string]string{"pause": "yes"}
		case 2:
			o.Fields = map[string]string{"rate": "1/s", "pause": "yes"}
		}
		o = d.Overrides(o, Hour)
		list = append(list, o)
		d.nextMillisecond(o.Created)
	}
	clear(ledger.Clearing{Key: "a"})
	clear(ledger.Clearing{Key: "b.test", ID: list[0].ID})
	clear(ledger.Clearing{ID: uuid.New()})
	clear(ledger.Clearing{Key: "b.test", Only: "pause"})
	d.hold(list...)
	clear(ledger.Clearing{Key: "a.test", Only: "pause", Reason: "resumed"}, list[1])
	clear(ledger.Clearing{Key: "a.test", Only: "pause"})
	clear(ledger.Clearing{ID: list[4].ID}, list[4])
	d.hold(list[0], list[2], list[3])
	clear(ledger.Clearing{Key: "a.test", Reason: "quiet again"}, list[0], list[2])
	clear(ledger.Clearing{Key: "a.test"})
	d.hold(list[3])
	line := func(o ledger.ThrottleOverride, fields, reason string) ledger.LogLine {
		return ledger.LogLine{Author: "ada", Subject: o.Key, Old: fields + ends(o), Reason: reason}
	}
	d.wrote("throttle clear", line(list[2], "pause=yes rate=1/s", "quiet again"),
		line(list[0], "rate=5/s", "quiet again"), line(list[4], "rate=5/s", ""), line(list[1], "pause=yes", "resumed"))
}

func weighs(d *Fixture) {
	ctx := ledger.WithAuthor(d.T.Context(), "ada")
	other := d.other(d.T, 0).Workspace
	weigh := func(weight int, want map[uuid.UUID]int) {
		d.T.Helper()
		w := effort.Must(d.SetWeight(ctx, d.Workspace, weight))(d.T)
		list := effort.Must(d.Workspaces(ctx))(d.T)
		at := slices.Index(list, w)
		effort.ErrorIf(d.T, w.ID != d.Workspace || w.Name != "desk" || w.Weight != weight || at < 0 ||
			list[1-at].Weight != 1, "got %+v of %+v", w, list)
		got := d.tunes().Weights
		effort.ErrorIf(d.T, !maps.Equal(got, want), "weights: got %v, want %v", got, want)
	}
	weigh(1, nil)
	weigh(ledger.WeightMax, map[uuid.UUID]int{d.Workspace: ledger.WeightMax})
	weigh(3, map[uuid.UUID]int{d.Workspace: 3})
	weigh(3, map[uuid.UUID]int{d.Workspace: 3})
	for _, weight := range []int{0, -1, ledger.WeightMax + 1} {
		denied(d.SetWeight(ctx, other, weight))(d, ledger.ErrIllegal)
	}
	denied(d.SetWeight(ctx, uuid.New(), 0))(d, ledger.ErrNoSuchWorkspace)
	weigh(1, nil)
	line := func(old, now string) ledger.LogLine {
		return ledger.LogLine{Author: "ada", Workspace: d.Workspace, Subject: d.Workspace.String(), Old: old, New: now}
	}
	d.wrote("workspace weight", line("3", "1"), line("100", "3"), line("1", "100"))
}

// page reads lines of the log.
func page(d *Fixture, q ledger.LogQuery) []ledger.LogLine {
	d.T.Helper()
	return effort.Must(d.OperatorLog(d.T.Context(), q))(d.T)
}

func pagesLog(d *Fixture) {
	const notes = 7
	for i := range notes {
		d.ok(d.Note(d.T.Context(), ledger.LogLine{Action: "test", Subject: string(rune('a' + i)),
			Workspace: d.Workspace, Old: "was", New: "is", Reason: "because"}))
	}
	all := page(d, ledger.LogQuery{Limit: ledger.LogLinesMax})
	if len(all) != notes+1 { // and the workspace
		d.T.Fatalf("log: %+v", all)
	}
	for i, l := range all[:notes] {
		want := ledger.LogLine{ID: l.ID, At: l.At, Action: "test", Workspace: d.Workspace,
			Subject: string(rune('a' + notes - 1 - i)), Old: "was", New: "is", Reason: "because"}
		effort.ErrorIf(d.T, l != want || l.At.Before(all[i+1].At), "line %d: got %+v, want %+v", i, l, want)
	}
	for size := 1; size <= notes+2; size++ {
		var paged []ledger.LogLine
		for q := (ledger.LogQuery{Limit: size}); ; {
			page := page(d, q)
			if paged = append(paged, page...); len(page) < size {
				break
			}
			q.Before, q.After = page[size-1].At, page[size-1].ID
		}
		effort.Equal(d.T, paged, all, "pages", size)
	}
	for _, limit := range []int{0, -1, ledger.LogLinesMax + 1} {
		denied(d.OperatorLog(d.T.Context(), ledger.LogQuery{Limit: limit}))(d, ledger.ErrIllegal)
	}
}

// pagesWithinAMillisecond: times in the ledger are whole milliseconds, those of a query need not be.
func pagesWithinAMillisecond(d *Fixture) {
	d.ok(d.Note(d.T.Context(), ledger.LogLine{Action: "test"}))
	at := page(d, ledger.LogQuery{Limit: 1})[0].At
	d.nextMillisecond(at)
	for before, want := range map[time.Time]int{at: 0, at.Add(1): 1, at.Add(time.Millisecond): 1, at.Add(Hour): 1} {
		got := page(d, ledger.LogQuery{Before: before, Limit: 9})
		n := len(slices.DeleteFunc(got, func(l ledger.LogLine) bool { return l.Action != "test" }))
		effort.Is(d.T, n, want, "lines before", before)
	}
}

func badNotes(d *Fixture) {
	longest, longer := strings.Repeat("x", ledger.OperatorTextMax), strings.Repeat("x", ledger.OperatorTextMax+1)
	d.refused(d.Note(d.T.Context(), ledger.LogLine{Subject: "x"}), ledger.ErrIllegal)
	for _, text := range []string{longer, "a\x00", "a\xe2\x82"} {
		for _, l := range []ledger.LogLine{{Action: text}, {Action: "test", Subject: text}, {Action: "test", Old: text},
			{Action: "test", New: text}, {Action: "test", Reason: text}} {
			d.refused(d.Note(d.T.Context(), l), ledger.ErrIllegal)
		}
		by := ledger.WithAuthor(d.T.Context(), text)
		d.refused(d.Note(by, ledger.LogLine{Action: "test"}), ledger.ErrIllegal)
	}
	l := ledger.LogLine{ID: uuid.New(), Action: longest, Subject: longest, Old: longest, New: longest, Reason: longest}
	for range 2 { // with an id it is written once
		d.ok(d.Note(ledger.WithAuthor(d.T.Context(), longest), l))
	}
	d.wrote("test")
	l.ID, l.Author = uuid.Nil, longest
	d.wrote(longest, l)
}

// authors: every change says whose it was, once.
func authors(d *Fixture) {
	w := uuid.New()
	do := func(ctx context.Context) []error {
		_, create := d.CreateWorkspace(ctx, w, "new")
		_, key := d.CreateKey(ctx, ledger.Key{ID: w.String()[:12], Workspace: d.Workspace, Label: "laptop"})
		_, grant := d.Grant(ctx, w, d.Workspace, 7, "paid")
		_, revoke := d.RevokeKey(ctx, w.String()[:12])
		return []error{create, key, grant, revoke}
	}
	ctx := ledger.WithAuthor(d.T.Context(), "ada")
	_, beat := d.WriteHeartbeat(ctx, heartbeatOf(ledger.Incarnation{Session: w, Node: w}))
	nodes := []error{beat, d.AskDrain(ctx, w), d.Undrain(ctx, w), d.Forget(ctx, w, 0)}
	for _, err := range slices.Concat(do(ctx), do(ctx), nodes) {
		d.ok(err)
	}
	key := ledger.LogLine{Author: "ada", Workspace: d.Workspace, Subject: w.String()[:12], New: "laptop"}
	node := ledger.LogLine{Author: "ada", Subject: w.String(), New: w.String()}
	d.wrote("workspace create", ledger.LogLine{Author: "ada", Workspace: w, Subject: w.String(), New: "new"},
		ledger.LogLine{Workspace: d.Workspace, Subject: d.Workspace.String(), New: "desk"})
	d.wrote("grant", ledger.LogLine{Author: "ada", Workspace: d.Workspace, Subject: w.String(), New: "7 credits",
		Reason: "paid"})
	d.wrote("key create", key)
	d.wrote("key revoke", key)
	d.wrote("node drain", node)
	d.wrote("node undrain", node)
	d.wrote("node forget", ledger.LogLine{Author: "ada", Subject: w.String()})
	before := page(d, ledger.LogQuery{Limit: ledger.LogLinesMax})
	w = uuid.New()
	for _, err := range do(ledger.WithAuthor(d.T.Context(), "a\x00"))[:3] {
		d.refused(err, ledger.ErrIllegal)
	}
	effort.Equal(d.T, page(d, ledger.LogQuery{Limit: ledger.LogLinesMax}), before, "log")
}
