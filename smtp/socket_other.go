//go:build !linux

package smtp

import "time"

// giveUpAfter does nothing: this system has no such option.
func (l *peekConn) giveUpAfter(time.Duration) {}

// unsent returns 0, because this system cannot tell. No caller needs it if giveUpAfter does nothing.
func (l *peekConn) unsent() int { return 0 }
