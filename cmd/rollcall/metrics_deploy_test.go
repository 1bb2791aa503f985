package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

// alerts is the form of a file of alert rules.
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
	file, err := os.Open(filepath.Join(HouseRoot, "deploy", "prometheus", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	d := yaml.NewDecoder(file)
	d.KnownFields(true)
	var a alerts
	if err := d.Decode(&a); err != nil {
		t.Fatal(err)
	}
	for _, g := range a.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// dashboard is what is read of the file for Grafana.
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
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var alertLabel = regexp.MustCompile(`\{\{ *\$labels\.(\w+)`)

func TestAlertsAskForWhatThereIs(t *testing.T) {
	t.Parallel()
	families, names := metricsOf(t), map[string]bool{}
	rules := readAlerts(t)
	for _, a := range rules {
		if names[a.Alert] || !regexp.MustCompile(`^Rollcall([A-Z][a-z]+)+$`).MatchString(a.Alert) {
			t.Errorf("%s: no name, or twice", a.Alert)
		}
		names[a.Alert] = true
		for _, fault := range checkExpr(families, a.Expr) {
			t.Errorf("%s: %s", a.Alert, fault)
		}
		if _, err := time.ParseDuration(a.For); a.For != "" && err != nil {
			t.Errorf("%s: %v", a.Alert, err)
		}
		if !slices.Contains([]string{"page", "ticket", "info"}, a.Labels["severity"]) {
			t.Errorf("%s: severity %q", a.Alert, a.Labels["severity"])
		}
		for _, wanted := range []string{"summary", "description", "runbook"} {
			if len(a.Annotations[wanted]) < 15 {
				t.Errorf("%s has no %s", a.Alert, wanted)
			}
		}
		checkTemplates(t, a)
		checkRunbook(t, a)
	}
	if len(rules) < 30 {
		t.Errorf("only %d rules were read", len(rules))
	}
}

// keepsLabels: what an expression begins with that keeps the labels of its first metric.
var keepsLabels = regexp.MustCompile(`^(\w+_over_time\()?rollcall_`)

// checkTemplates: a text only names labels that are left when the expression is done.
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

// checkRunbook: what an alert says to read is there, with its headline.
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

// anchorOf is how a headline is linked to.
func anchorOf(title string) string {
	kept := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(title), "")
	return strings.ReplaceAll(kept, " ", "-")
}

func TestDashboardAsksForWhatThereIs(t *testing.T) {
	t.Parallel()
	families, d := metricsOf(t), readDashboard(t)
	if d.Title == "" || d.UID == "" || d.SchemaVersion < 36 {
		t.Errorf("title %q, uid %q, schema %d: Grafana 10 takes 36 and later", d.Title, d.UID, d.SchemaVersion)
	}
	ids, refs, queries, end := map[int]bool{}, 0, 0, 0
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: the number %d is there twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.GridPos.X+p.GridPos.W > 24 || p.GridPos.Y < end && p.Type == "row" {
			t.Errorf("%s: out of the grid: %+v", p.Title, p.GridPos)
		}
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
	if refs > 0 || queries < 40 {
		t.Errorf("%d queries, %d of them without a letter", queries, refs)
	}
	values := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := values.FindStringSubmatch(v.Definition)
		if m == nil || families[m[1]] == nil || !slices.Contains(append(families[m[1]].labels, fromScraping...), m[2]) {
			t.Errorf("variable %s: %s asks for what there is not", v.Name, v.Definition)
		}
	}
}
