package throttle

// Together is how many RCPTs go together, in a transaction or in a group of commands, as far
// as answers have shown that a receiver bears it. One at first; twice as many each time that
// as many in a row were answered plainly: 2xx, or 5xx about the mailbox. RFC 5321 §4.5.3.1.8
// lets a client count on 100 in a transaction, but not every server has read it.
type Together struct {
	most  int // 0: one
	plain int // answers in a row since then
}

// OnPlain notes a plain answer. It never grows beyond what is told.
func (t *Together) OnPlain(told int) {
	if t.plain++; t.plain < t.Now(told) || t.Now(told) == told {
		return
	}
	t.most, t.plain = min(2*t.Now(told), told), 0
}

// OnOther notes an answer that was not plain, or a session that was cut: half as many.
func (t *Together) OnOther() { t.OnSplit(t.most / 2) }

// OnSplit notes that no more than n were taken.
func (t *Together) OnSplit(n int) { t.most, t.plain = min(max(1, n), max(1, t.most)), 0 }

// Growing is a Together while a session works: it grows from Least by the answers that the session gets, up to Most,
// and never falls below Least, because the session was granted so many transactions.
type Growing struct {
	Together
	Least, Most int
}

// OnPlain notes a plain answer.
func (g *Growing) OnPlain() { g.Together.OnPlain(g.Most) }

// Now is how many may go together.
func (g *Growing) Now() int { return max(g.Least, g.Together.Now(g.Most)) }

// Now is how many may go together where so many are told.
func (t *Together) Now(told int) int { return max(1, min(t.most, told)) }
