package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"rollcall/config"
)

// Documents and example files name settings, commands and metrics. These tests
// keep what they name in step with what there is.

// textsOf reads the files of folders of the repository that end in one of some ways.
func textsOf(t *testing.T, folders, endings []string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, folder := range folders {
		root := filepath.Join(HouseRoot, folder)
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			wanted := func(ending string) bool { return strings.HasSuffix(name, ending) }
			if err != nil || d.IsDir() || !slices.ContainsFunc(endings, wanted) {
				return err
			}
			text, err := os.ReadFile(name)
			texts[filepath.Base(name)] = string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

// TestDeploy reads the files of deploy as the programs do that get them: each
// setting exists, the configurations are valid, and the ledger's rights are those
// of the document that tests run.
func TestDeploy(t *testing.T) {
	texts := textsOf(t, []string{"deploy"}, []string{""})
	environ := regexp.MustCompile(`\bROLLCALL_[A-Z_]+`)
	own := []string{"ROLLCALL_IMAGE"} // a variable of the compose file
	for file, text := range texts {
		for _, name := range environ.FindAllString(text, -1) {
			if len(config.UnknownEnviron([]string{name + "=x"})) > 0 && !slices.Contains(own, name) {
				t.Errorf("deploy/%s: %s is no setting", file, name)
			}
		}
	}
	inKubernetes := regexp.MustCompile(`(?s)  rollcall\.toml: \|\n    (.*?)\n---`).
		FindStringSubmatch(texts["kubernetes.yaml"])
	if inKubernetes == nil {
		t.Fatal("deploy/kubernetes.yaml has no rollcall.toml")
	}
	podEnviron := []string{"ROLLCALL_LEDGER_URL=postgresql://node@db:26257/rollcall",
		"ROLLCALL_CLUSTER_ADVERTISE=rollcall-0.rollcall-nodes"}
	for name, c := range map[string]struct {
		toml    string
		environ []string
	}{
		"rollcall.toml":   {texts["rollcall.toml"], nil},
		"one-server.toml": {texts["one-server.toml"], nil},
		"kubernetes.yaml": {strings.ReplaceAll(inKubernetes[1], "\n    ", "\n"), podEnviron},
	} {
		file := filepath.Join(t.TempDir(), "rollcall.toml")
		if err := os.WriteFile(file, []byte(c.toml), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(file, c.environ); err != nil {
			t.Errorf("the configuration in deploy/%s: %v", name, err)
		}
	}
	_, rights, _ := strings.Cut(texts["rights.sql"], "\n")
	if document := textsOf(t, []string{"docs"}, []string{"database.md"})["database.md"]; rights == "" ||
		!strings.Contains(document, "```sql\n"+rights+"```") {
		t.Error("deploy/rights.sql and docs/start/database.md give different rights")
	}
}

// TestDocumentsNameCommandsThatExist: each line of a shell block, and each command
// in an example file, that begins with rollcall is one that this version takes.
func TestDocumentsNameCommandsThatExist(t *testing.T) {
	block := regexp.MustCompile("(?s)```sh\n(.*?)```")
	command := regexp.MustCompile(`(?:^|[;&|(] *|do +|-- +)(?:\./)?rollcall( [^;&|#>)]*)`)
	inner := regexp.MustCompile(`\$\(date [^)]*\)| [0-9]?>>? \S+| 2>&1`) // a value, and where output goes
	quoted := regexp.MustCompile(`"[^"]*"`)
	found := 0
	check := func(file, line string) {
		line = quoted.ReplaceAllString(inner.ReplaceAllString(strings.TrimLeft(line, "# "), ""), "text")
		for _, m := range command.FindAllStringSubmatch(line, -1) {
			found++
			args := strings.Fields(m[1])
			c, rest, err := newRoot(nil).Find(args)
			if err == nil {
				err = tryFlags(c, rest)
			}
			if err != nil || c.HasSubCommands() && !c.Runnable() {
				t.Errorf("%s: rollcall%s: got %q with %v, want a command", file, m[1], c.CommandPath(), err)
			}
		}
	}
	for file, text := range textsOf(t, []string{"docs"}, []string{".md"}) {
		for _, b := range block.FindAllStringSubmatch(text, -1) {
			for line := range strings.SplitSeq(b[1], "\n") {
				check(file, strings.TrimSpace(line))
			}
		}
	}
	for file, text := range textsOf(t, []string{"deploy"}, []string{".yaml"}) {
		for line := range strings.SplitSeq(text, "\n") {
			if line = strings.TrimSpace(line); !strings.HasSuffix(line, ":") {
				check(file, line)
			}
		}
	}
	if found < 40 {
		t.Errorf("only %d commands were found: is the pattern right?", found)
	}
}

// tryFlags parses flags and looks at the number of arguments.
func tryFlags(c *cobra.Command, args []string) error {
	if err := c.ParseFlags(args); err != nil {
		return err
	}
	if c.Args == nil {
		return nil
	}
	return c.Args(c, c.Flags().Args())
}

// TestDocumentsNameMetricsThatExist: each metric that a document names is one that a
// node registers.
func TestDocumentsNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	families := metricsOf(t)
	metric := regexp.MustCompile(`\brollcall_[a-z_]+[a-z]\b`)
	users := []string{"rollcall_owner", "rollcall_node", "rollcall_audit"} // of the ledger
	found := 0
	for file, text := range textsOf(t, []string{"docs", "deploy"}, []string{".md"}) {
		for _, name := range metric.FindAllString(text, -1) {
			if slices.Contains(users, name) {
				continue
			}
			if found++; families[name] == nil {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d metrics were found: is the pattern right?", found)
	}
}
