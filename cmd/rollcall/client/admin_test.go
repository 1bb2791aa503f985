package client

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestErrorsNameCommands(t *testing.T) {
	path := regexp.MustCompile(`(GET|POST|PUT|DELETE) /v1/[^ ;:,")` + "`" + `]*`)
	route := regexp.MustCompile(`^\tadd(\.unless\(.*\))?\("`) // an entry of the table of routes
	files, err := filepath.Glob("../../../http/admin/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "//") || route.MatchString(line) || strings.HasSuffix(name, "_test.go") {
				continue
			}
			if found := path.FindString(InCommands(line)); found != "" {
				t.Errorf("%s: a person is told of %s", filepath.Base(name), found)
			}
		}
	}
	client := NewAdmin("http://node", "")
	err = client.refusal(404, []byte(`{"error":{"code":"x","message":"see GET /v1/throttle/explain"}}`))
	if err.Error() != "see `rollcall throttle explain`" {
		t.Error(err)
	}
}
