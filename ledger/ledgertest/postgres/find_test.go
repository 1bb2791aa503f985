package postgres

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// install puts programs into a folder that claim a version; 0: no postgres.
func install(t *testing.T, folder string, version int, withInitdb bool) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{}
	if version > 0 {
		const says = "#!/bin/sh\necho 'postgres (PostgreSQL) %d.3 (Debian %[1]d.3-1)'\n"
		programs["postgres"] = fmt.Sprintf(says, version)
	}
	if withInitdb {
		programs["initdb"] = "#!/bin/sh\n"
	}
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFind(t *testing.T) {
	for _, tt := range []struct {
		name    string
		install map[string]int // folder below "usual", or "path", to version
		bare    string         // a folder without initdb
		want    string         // "": ErrMissing
	}{
		{name: "nothing"},
		{name: "too old", install: map[string]int{"usual/14": 14}},
		{name: "the newest, by number", install: map[string]int{"usual/9": 9, "usual/15": 15, "usual/17": 17},
			want: "usual/17"},
		{name: "path before the usual folder", install: map[string]int{"path": 15, "usual/17": 17}, want: "path"},
		{name: "path is too old", install: map[string]int{"path": 13, "usual/16": 16}, want: "usual/16"},
		{name: "no initdb beside it", install: map[string]int{"usual/15": 15, "usual/17": 17}, bare: "usual/17",
			want: "usual/15"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", filepath.Join(root, "path"))
			for folder, version := range tt.install {
				install(t, filepath.Join(root, folder), version, folder != tt.bare)
			}
			got, err := find(t.Context(), filepath.Join(root, "usual", "*"))
			if tt.want == "" {
				if !errors.Is(err, ErrMissing) {
					t.Errorf("got %q, %v, want ErrMissing", got, err)
				}
				return
			}
			if want := filepath.Join(root, tt.want); err != nil || got != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
}
