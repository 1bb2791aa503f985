package clustertest_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets all tests run at the same time: they mostly wait for the times of
// heartbeats, the longest of which is 10 s.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
