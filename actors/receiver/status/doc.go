// Package status holds what receivers show of themselves: metrics, the minutes of the last hours, traces, and one
// answer to questions.
//
// Blocked is what keeps us from asking a receiver more; it is made in one place and shown everywhere. Histories keeps
// what a node's receivers did and were answered in each minute, whether or not their actors still live. Traces passes
// on the lines of sessions while they are watched. Tallies counts over the last seconds or minutes. Redact takes local
// parts out of texts. NewCollector shows the busiest receivers as metrics.
//
// All of it is bounded, and costs next to nothing while nobody asks.
package status
