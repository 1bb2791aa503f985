package receiver

import (
	"os"
	"testing"

	"rollcall/config/effort"
)

// TestMain lets tests that talk over connections run beside each other: they mostly wait.
func TestMain(m *testing.M) {
	effort.AtOnce(16)
	os.Exit(m.Run())
}
