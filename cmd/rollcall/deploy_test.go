package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8syaml "sigs.k8s.io/yaml"

	"rollcall/config"
	"rollcall/config/effort"
)

// Documents and example files name settings, commands and metrics. These tests check that all of them exist.

// textsOf reads the files in folders of the repository whose names have one of these endings.
func textsOf(t *testing.T, folders, endings []string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, folder := range folders {
		root := filepath.Join(HouseRoot, folder)
		effort.OK(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			wanted := func(ending string) bool { return strings.HasSuffix(name, ending) }
			if err != nil || d.IsDir() || !slices.ContainsFunc(endings, wanted) {
				return err
			}
			text, err := os.ReadFile(name)
			texts[filepath.Base(name)] = string(text)
			return err
		}))
	}
	return texts
}

// TestDeploy reads the files in deploy as the programs that use them do. Each setting exists, the configurations are
// valid, and the ledger's rights are those of the document whose blocks tests run.
func TestDeploy(t *testing.T) {
	texts := textsOf(t, []string{"deploy"}, []string{""})
	environ := regexp.MustCompile(`\bROLLCALL_[A-Z_]+`)
	own := []string{"ROLLCALL_IMAGE"} // a variable of the compose file
	for file, text := range texts {
		for _, name := range environ.FindAllString(text, -1) {
			effort.ErrorIf(t, len(config.UnknownEnviron([]string{name + "=x"})) > 0 && !slices.Contains(own, name),
				"deploy/%s: %s is no setting", file, name)
		}
	}
	inKubernetes := regexp.MustCompile(`(?s)  rollcall\.toml: \|\n    (.*?)\n---`).
		FindStringSubmatch(texts["kubernetes.yaml"])
	effort.FatalIf(t, inKubernetes == nil, "deploy/kubernetes.yaml has no rollcall.toml")
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
		effort.OK(t, os.WriteFile(file, []byte(c.toml), 0o600))
		effort.Denied(config.Load(file, c.environ))(t, nil, "the configuration in deploy/", name)
	}
	_, rights, _ := strings.Cut(texts["rights.sql"], "\n")
	document := textsOf(t, []string{"docs"}, []string{"database.md"})["database.md"]
	effort.ErrorIf(t, rights == "" || !strings.Contains(document, "```sql\n"+rights+"```"),
		"deploy/rights.sql and docs/start/database.md give different rights")
}

// TestDocumentsNameCommandsThatExist: this version accepts each line of a shell block, and each command in an example
// file, that begins with rollcall.
func TestDocumentsNameCommandsThatExist(t *testing.T) {
	block := regexp.MustCompile("(?s)```sh\n(.*?)```")
	command := regexp.MustCompile(`(?:^|[;&|(] *|do +|-- +)(?:\./)?rollcall( [^;&|#>)]*)`)
	inner := regexp.MustCompile(`\$\(date [^)]*\)| [0-9]?>>? \S+| 2>&1`) // a date to insert, and redirections
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
	effort.ErrorIf(t, found < 40, "only %d commands were found: is the pattern right?", found)
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

// TestDocumentsNameMetricsThatExist: a node registers each metric that a document names.
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
			found++
			effort.ErrorIf(t, families[name] == nil, "%s: there is no metric %s", file, name)
		}
	}
	effort.ErrorIf(t, found < 20, "only %d metrics were found: is the pattern right?", found)
}

// alerts is the structure of a file of alert rules.
type alerts struct {
	Groups []struct {
		Name  string  `yaml:"name"`
		Rules []alert `yaml:"rules"`
	} `yaml:"groups"`
}

type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// readAlerts reads the rules that are shipped.
func readAlerts(t *testing.T) (all []alert) {
	t.Helper()
	file := effort.Must(os.Open(filepath.Join(HouseRoot, "deploy", "prometheus", "alerts.yml")))(t)
	defer file.Close()
	d := yaml.NewDecoder(file)
	d.KnownFields(true)
	var a alerts
	effort.OK(t, d.Decode(&a))
	for _, g := range a.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// dashboard is the part of Grafana's file that the tests read.
type dashboard struct {
	Title         string
	UID           string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type, Definition string
		}
	}
	Panels []struct {
		ID          int
		Type, Title string
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct{ Expr, RefID string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(HouseRoot, "deploy", "grafana", "rollcall.json"))
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	effort.OK(t, err)
	return d
}

var alertLabel = regexp.MustCompile(`\{\{ *\$labels\.(\w+)`)

func TestAlertsAskForWhatThereIs(t *testing.T) {
	t.Parallel()
	families, names := metricsOf(t), map[string]bool{}
	rules := readAlerts(t)
	for _, a := range rules {
		effort.ErrorIf(t, names[a.Alert] || !regexp.MustCompile(`^Rollcall([A-Z][a-z]+)+$`).MatchString(a.Alert),
			"%s: no name, or twice", a.Alert)
		names[a.Alert] = true
		for _, fault := range checkExpr(families, a.Expr) {
			t.Errorf("%s: %s", a.Alert, fault)
		}
		_, err := time.ParseDuration(a.For)
		effort.ErrorIf(t, a.For != "" && err != nil, "%s: %v", a.Alert, err)
		effort.ErrorIf(t, !slices.Contains([]string{"page", "ticket", "info"}, a.Labels["severity"]),
			"%s: severity %q", a.Alert, a.Labels["severity"])
		for _, wanted := range []string{"summary", "description", "runbook"} {
			effort.ErrorIf(t, len(a.Annotations[wanted]) < 15, "%s has no %s", a.Alert, wanted)
		}
		checkTemplates(t, a)
		checkRunbook(t, a)
	}
	effort.ErrorIf(t, len(rules) < 30, "only %d rules were read", len(rules))
}

// keepsLabels matches the beginning of an expression that keeps the labels of its first metric.
var keepsLabels = regexp.MustCompile(`^(\w+_over_time\()?rollcall_`)

// checkTemplates checks that a text names only labels that the expression's result has.
func checkTemplates(t *testing.T, a alert) {
	t.Helper()
	aggregated := regexp.MustCompile(`\b(sum|min|max|count)\b`).MatchString(a.Expr)
	for _, text := range a.Annotations {
		for _, m := range alertLabel.FindAllStringSubmatch(text, -1) {
			if aggregated && !slices.Contains(groupedBy(a.Expr), m[1]) && !keepsLabels.MatchString(a.Expr) ||
				!aggregated && !slices.Contains(fromScraping, m[1]) {
				t.Errorf("%s: the label %s is not left of %s", a.Alert, m[1], a.Expr)
			}
		}
	}
}

// checkRunbook checks that the headline to which an alert links exists.
func checkRunbook(t *testing.T, a alert) {
	t.Helper()
	path, anchor, _ := strings.Cut(a.Annotations["runbook"], "#")
	text, err := os.ReadFile(filepath.Join(HouseRoot, filepath.FromSlash(path)))
	if err != nil {
		t.Errorf("%s: %v", a.Alert, err)
		return
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") &&
			(anchor == "" || anchorOf(title) == anchor) {
			return
		}
	}
	t.Errorf("%s: %s has no headline for #%s", a.Alert, path, anchor)
}

// anchorOf returns the anchor of a headline.
func anchorOf(title string) string {
	kept := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(title), "")
	return strings.ReplaceAll(kept, " ", "-")
}

func TestDashboardAsksForWhatThereIs(t *testing.T) {
	t.Parallel()
	families, d := metricsOf(t), readDashboard(t)
	effort.ErrorIf(t, d.Title == "" || d.UID == "" || d.SchemaVersion < 36,
		"title %q, uid %q, schema %d: Grafana 10 takes 36 and later", d.Title, d.UID, d.SchemaVersion)
	ids, refs, queries, end := map[int]bool{}, 0, 0, 0
	for _, p := range d.Panels {
		effort.ErrorIf(t, ids[p.ID], "%s: the number %d is there twice", p.Title, p.ID)
		ids[p.ID] = true
		effort.ErrorIf(t, p.GridPos.X+p.GridPos.W > 24 || p.GridPos.Y < end && p.Type == "row",
			"%s: out of the grid: %+v", p.Title, p.GridPos)
		end = max(end, p.GridPos.Y+p.GridPos.H)
		for _, target := range p.Targets {
			queries++
			if target.RefID == "" {
				refs++
			}
			for _, fault := range checkExpr(families, target.Expr) {
				t.Errorf("%s: %s", p.Title, fault)
			}
		}
	}
	effort.ErrorIf(t, refs > 0 || queries < 40, "%d queries, %d of them without a letter", queries, refs)
	values := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := values.FindStringSubmatch(v.Definition)
		if m == nil || families[m[1]] == nil || !slices.Contains(append(families[m[1]].labels, fromScraping...), m[2]) {
			t.Errorf("variable %s: %s asks for a metric or label that does not exist", v.Name, v.Definition)
		}
	}
}

// alertCases is the part of a file of promtool's rule tests that these tests read.
type alertCases struct {
	RuleFiles []string `yaml:"rule_files"`
	Tests     []struct {
		Name  string `yaml:"name"`
		Cases []struct {
			Expr    string           `yaml:"expr"`
			Samples []map[string]any `yaml:"exp_samples"`
		} `yaml:"promql_expr_test"`
	} `yaml:"tests"`
}

// TestEveryAlertHasCases: each alert has one case in which it fires and one in which it does not.
func TestEveryAlertHasCases(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(HouseRoot, "deploy", "prometheus", "alerts_test.yml"))
	var all alertCases
	if err == nil {
		err = yaml.Unmarshal(text, &all)
	}
	effort.OK(t, err)
	asked := regexp.MustCompile(`^count by \([^)]*\) \(ALERTS\{alertname="(\w+)", alertstate="firing"\}\)$`)
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, one := range all.Tests {
		for _, c := range one.Cases {
			m := asked.FindStringSubmatch(c.Expr)
			switch {
			case m == nil:
				t.Errorf("%s: %s asks for no alert", one.Name, c.Expr)
			case len(c.Samples) > 0:
				fires[m[1]] = true
			default:
				rests[m[1]] = true
			}
		}
	}
	for _, a := range readAlerts(t) {
		effort.ErrorIf(t, !fires[a.Alert] || !rests[a.Alert],
			"%s: a case in which it fires: %v; one in which it does not: %v", a.Alert, fires[a.Alert], rests[a.Alert])
	}
}

// TestAlertsFire checks rules and configuration with promtool, as an operator does. With -long it also runs the
// cases, which take a minute.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool on the PATH: the cases of deploy/prometheus/alerts_test.yml are not run")
	}
	all := [][]string{{"check", "rules", "alerts.yml"}, {"check", "config", "prometheus.yml"}}
	if effort.Long() {
		all = append(all, []string{"test", "rules", "alerts_test.yml"})
	}
	for _, args := range all {
		c := exec.CommandContext(t.Context(), tool, args...)
		c.Dir = filepath.Join(HouseRoot, "deploy", "prometheus")
		out, err := c.CombinedOutput()
		effort.ErrorIf(t, err != nil, "promtool %q: %v\n%s", args, err, out)
	}
}

// serviceMonitor has the fields of monitoring.coreos.com/v1 that the file uses.
type serviceMonitor struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Selector  meta.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port, Scheme string
			TLSConfig    struct {
				InsecureSkipVerify bool `json:"insecureSkipVerify"`
			} `json:"tlsConfig"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// TestKubernetesFile reads each object strictly into the API server's type for it, which finds misspelled and
// misplaced fields. Images are pinned, and Go knows the memory limits of containers.
func TestKubernetesFile(t *testing.T) {
	t.Parallel()
	text := effort.Must(os.ReadFile(filepath.Join(HouseRoot, "deploy", "kubernetes.yaml")))(t)
	var nodes apps.StatefulSet
	kinds := map[string]any{"v1 Service": &core.Service{}, "v1 ConfigMap": &core.ConfigMap{},
		"apps/v1 StatefulSet":                     &nodes,
		"policy/v1 PodDisruptionBudget":           &policy.PodDisruptionBudget{},
		"networking.k8s.io/v1 NetworkPolicy":      &networking.NetworkPolicy{},
		"networking.k8s.io/v1 Ingress":            &networking.Ingress{},
		"monitoring.coreos.com/v1 ServiceMonitor": &serviceMonitor{}}
	objects := strings.Split(string(text), "\n---\n")
	for _, object := range objects {
		var is meta.TypeMeta
		effort.OK(t, k8syaml.Unmarshal([]byte(object), &is))
		into := kinds[is.APIVersion+" "+is.Kind]
		if into == nil {
			t.Errorf("no type is known for %s %s", is.APIVersion, is.Kind)
		} else if err := k8syaml.UnmarshalStrict([]byte(object), into); err != nil {
			t.Errorf("%s: %v", is.Kind, err)
		}
	}
	pod := nodes.Spec.Template.Spec
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		_, version, _ := strings.Cut(filepath.Base(c.Image), ":")
		effort.ErrorIf(t, version == "" || version == "latest", "%s: the image %s has no version", c.Name, c.Image)
	}
	if len(objects) < 8 || len(pod.Containers) != 1 || pod.Containers[0].Resources.Limits.Memory().Value() != 2<<30 {
		t.Errorf("got %d objects and %+v", len(objects), pod.Containers)
	}
}
