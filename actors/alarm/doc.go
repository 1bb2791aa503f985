// Package alarm wakes an actor at a time that may be moved forward.
//
// The actor library's own receive timeout races with the mailbox; an Alarm is a
// timer that sends a message, and tells a late message of an older timer from
// the newest. The package decides nothing. Read Alarm.
package alarm
