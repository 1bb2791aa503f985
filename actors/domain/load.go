package domain

import "sync/atomic"

// loadMax is how many addresses may be at receivers before domains offer little
// at a time. Measured: 330 bytes each, so 20 MB.
const loadMax = 60_000

// Load counts the addresses that the domains of a node have at receivers, and the
// bytes of what receivers said that they keep beyond their own share. The zero Load
// has none. Safe for concurrent use.
type Load struct{ out, texts atomic.Int64 }

func (l *Load) add(n int) { l.out.Add(int64(n)) }

func (l *Load) heavy() bool { return l.out.Load() > loadMax }

// keep says whether there is room for so many bytes more, and takes it.
func (l *Load) keep(bytes int) bool {
	if l.texts.Add(int64(bytes)) > textsMax {
		l.texts.Add(int64(-bytes))
		return false
	}
	return true
}

func (l *Load) forget(bytes int) { l.texts.Add(int64(-bytes)) }
