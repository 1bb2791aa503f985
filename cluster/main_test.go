package cluster_test

import (
	"os"
	"testing"

	"rollcall/cluster/clustertest"
	"rollcall/config/effort"
)

// TestMain lets several worlds run at the same time: they mostly wait for the times of heartbeats.
func TestMain(m *testing.M) {
	effort.AtOnce(clustertest.AtOnce())
	os.Exit(m.Run())
}
