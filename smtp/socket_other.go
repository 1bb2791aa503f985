//go:build !linux

package smtp

import "time"

// giveUpAfter does nothing: this system has no such option.
func (l *peekConn) giveUpAfter(time.Duration) {}

// unsent returns 0, because this system cannot tell. Nothing depends on it where giveUpAfter does nothing.
func (l *peekConn) unsent() int { return 0 }
