package verdict

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollcall/config/effort"
)

func (v Verdict) golden() string {
	outcome := v.Outcome.String()
	if v.Bare {
		outcome += ", bare"
	}
	text := fmt.Sprintf("%v | %v | %v | %v", outcome, v.Reason, v.Blame, v.Action)
	if v.Wait > 0 {
		text += " " + v.Wait.String()
	}
	return text
}

func TestGoldenReplies(t *testing.T) {
	files, err := filepath.Glob("testdata/replies/*.txt")
	effort.FatalIf(t, err != nil || len(files) < 5, "%d files, %v", len(files), err)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			content := effort.Must(os.ReadFile(file))(t)
			for i, line := range strings.Split(string(content), "\n") {
				if line == "" || strings.HasPrefix(line, "#") {
					continue
				}
				columns := strings.SplitN(line, " | ", 3)
				effort.MustBe(t, len(columns), 3, "line", i+1, line)
				a, err := Sample(columns[0]+" | "+columns[1], "mx.example.com")
				effort.OK(t, err, "line", i+1)
				if v := Builtin().Judge(a); v.golden() != columns[2] {
					t.Errorf("line %d: %s %s\n got %s (rule %s)\nwant %s", i+1, columns[0], columns[1], v.golden(), v.Rule, columns[2])
				}
			}
		})
	}
}
