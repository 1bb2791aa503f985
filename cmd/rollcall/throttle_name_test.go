package main

import (
	"strings"
	"testing"
	"time"

	"rollcall/actors/inspect"
)

// TestTheDefaultSourceIsNamed wherever it is told who said something.
func TestTheDefaultSourceIsNamed(t *testing.T) {
	got := from(inspect.Said{Name: "source:", ID: "0123456789", Author: "anna@host"}, time.Now())
	if !strings.Contains(got, "source:default,") {
		t.Errorf("said by %q", got)
	}
}
