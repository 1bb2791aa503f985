package throttle

// Together learns how many RCPTs may go together in a transaction or a group of commands. Together starts at one and
// doubles after as many plain answers in a row: 2xx, or 5xx about the mailbox. RFC 5321 §4.5.3.1.8 promises a client
// 100 in a transaction, but not every server keeps to that.
type Together struct {
	most  int // 0: one
	plain int // plain answers in a row since most changed
}

// OnPlain notes a plain answer. Together never grows beyond the configured number.
func (t *Together) OnPlain(allowed int) {
	if t.plain++; t.plain < t.Now(allowed) || t.Now(allowed) == allowed {
		return
	}
	t.most, t.plain = min(2*t.Now(allowed), allowed), 0
}

// OnOther halves the number after an answer that isn't plain, and after a cut session.
func (t *Together) OnOther() { t.OnSplit(t.most / 2) }

// OnSplit notes that the receiver accepted no more than n.
func (t *Together) OnSplit(n int) { t.most, t.plain = min(max(1, n), max(1, t.most)), 0 }

// Growing is a Together within one session. Growing grows with the session's answers, from Least up to Most. Growing
// never falls below Least, because the session was given that many.
type Growing struct {
	Together
	Least, Most int
}

// OnPlain notes a plain answer.
func (g *Growing) OnPlain() { g.Together.OnPlain(g.Most) }

// Now returns how many may go together.
func (g *Growing) Now() int { return max(g.Least, g.Together.Now(g.Most)) }

// Now returns how many may go together, at most the configured number.
func (t *Together) Now(allowed int) int { return max(1, min(t.most, allowed)) }
