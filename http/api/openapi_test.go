package api

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestDescriptionIsLinted by Redocly's recommended rules, where npm has installed it (npm/package.json).
func TestDescriptionIsLinted(t *testing.T) {
	linter := filepath.Join("npm", "node_modules", ".bin", "redocly")
	if _, err := os.Stat(linter); err != nil {
		t.Skip("openapi.yaml is not linted: run npm --prefix http/api/npm ci")
	}
	lint := exec.CommandContext(t.Context(), linter, "lint", "--format=stylish", "openapi.yaml")
	lint.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
