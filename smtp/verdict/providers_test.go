package verdict

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/smtp"
)

// goldenLine is one line of testdata/replies.
type goldenLine struct{ place, stage, reply, verdict string }

// goldenLines reads the files that match.
func goldenLines(t *testing.T, pattern string) []goldenLine {
	t.Helper()
	files, err := filepath.Glob(pattern)
	effort.FatalIf(t, err != nil || len(files) == 0, "%d files match %s, %v", len(files), pattern, err)
	var list []goldenLine
	for _, file := range files {
		content := effort.Must(os.ReadFile(file))(t)
		for i, line := range strings.Split(string(content), "\n") {
			columns := strings.SplitN(line, " | ", 3)
			if len(columns) == 3 && !strings.HasPrefix(line, "#") {
				list = append(list, goldenLine{fmt.Sprintf("%s:%d", filepath.Base(file), i+1), columns[0], columns[1], columns[2]})
			}
		}
	}
	return list
}

// providerHosts is a host of each provider for which there are rules.
func providerHosts(t *testing.T) map[string]bool {
	t.Helper()
	hosts := map[string]bool{}
	for _, r := range Builtin().rules {
		for _, suffix := range r.scope {
			hosts["mx."+suffix] = true
		}
	}
	effort.FatalIf(t, len(hosts) < 50, "there are rules for %d providers only", len(hosts))
	return hosts
}

// What is about us or the receiver in general words is no word about the mailbox at any provider: the rules of a
// provider come first.
func TestNoProviderBlamesTheAddressForUs(t *testing.T) {
	t.Parallel()
	hosts, tried, try := providerHosts(t), 0, effort.EveryNth(5)
	for _, line := range goldenLines(t, "testdata/replies/*.txt") {
		ofUs := strings.Contains(line.verdict, " | source | ")
		if !ofUs && !strings.HasPrefix(line.place, "public-own-faults") {
			continue
		}
		stage, _, _ := strings.Cut(line.stage, "@")
		for host := range hosts {
			if host == "mx.comcast.net" && strings.HasSuffix(line.reply, "too many recent messages") {
				continue // a known conflict: there it is the recipient who gets too much
			}
			if tried++; !try() {
				continue
			}
			a, err := Sample(stage+" | "+line.reply, host)
			effort.OK(t, err, line.place)
			v := Builtin().Judge(a)
			if ofUs && v.Outcome != smtp.Undecided || v.Outcome == smtp.Valid || v.Outcome == smtp.Invalid && !v.Bare {
				t.Errorf("%s at %s: %s by %s: %s", line.place, host, v.golden(), v.Rule, line.reply)
			}
		}
	}
	effort.ErrorIf(t, tried < 10_000, "only %d replies were tried", tried)
}

// What everybody says of a missing mailbox, a provider may say as well.
func TestEveryProviderMayUseTheWordsOfOthers(t *testing.T) {
	hosts, tried := providerHosts(t), 0
	for _, line := range goldenLines(t, "testdata/replies/words.txt") {
		if !strings.Contains(line.verdict, "invalid | mailbox_") {
			continue
		}
		for host := range hosts {
			a, err := Sample(line.stage+" | "+line.reply, host)
			effort.OK(t, err, line.place)
			if v := Builtin().Judge(a); v.Outcome != smtp.Invalid {
				t.Errorf("%s at %s: %s by %s: %s", line.place, host, v.golden(), v.Rule, line.reply)
			}
			tried++
		}
	}
	effort.ErrorIf(t, tried < 1000, "only %d replies were tried", tried)
}
