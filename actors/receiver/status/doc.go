// Package status holds what receivers show of themselves: metrics, the minutes of the last hours, traces, and answers
// to questions.
//
// Blocked is what keeps us from asking a receiver more. A Blocked is made in one place and shown everywhere. Histories
// keeps what a node's receivers did and were answered in each minute, even after their actors have ended. Traces passes
// on the lines of sessions while somebody watches them. Tallies counts over the last seconds or minutes. Redact removes
// local parts from texts. NewCollector shows the busiest receivers as metrics.
//
// All of it is bounded, and costs next to nothing while nobody asks.
package status
