package clustertest_test

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"rollcall/cluster/clustertest"
)

// TestMain lets several worlds run at the same time: they mostly wait for the times of
// heartbeats.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(clustertest.AtOnce)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
