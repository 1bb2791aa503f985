// Package yardstick measures how fast a bare SMTP loop asks the lab, so that the
// engine's speed can be told as a ratio. Only tests and benchmarks use it.
package yardstick
