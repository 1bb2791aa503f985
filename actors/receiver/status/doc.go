// Package status is what receivers tell of themselves: in metrics, in the minutes of the last
// hours, in traces, and in one answer to whoever asks.
//
// Blocked is what keeps a receiver from asking more. The receiver makes it in one place, and
// all that is told takes it from there. Histories keeps what a node's receivers did in each
// minute and what they were told, whether their actors still live or not. Traces passes on
// what sessions say while somebody looks at them. Tallies counts over the last seconds or
// minutes. Redact takes people's names out of texts. NewCollector shows the busiest receivers
// as metrics.
//
// All of it is bounded, and costs next to nothing while nobody asks.
package status
