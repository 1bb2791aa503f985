// Package watchdog notices when the whole process did not run for a while: it was stopped, its
// machine slept or was moved, or others had the processor.
//
// There is one for a process. It writes one line for each pause, and counts the long ones, so that
// whoever has work which others may have taken over meanwhile can ask whether there was one. A
// machine that is only slow is no pause: who asks proves that something ran.
//
// Read Watchdog.
package watchdog
