//go:build !linux

package smtp

import "time"

// giveUpAfter does nothing: this system ends a connection when it likes.
func (l *lookout) giveUpAfter(time.Duration) {}

// unsent cannot tell on this system; nothing depends on it where giveUpAfter does nothing.
func (l *lookout) unsent() int { return 0 }
