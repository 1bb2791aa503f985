package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"gopkg.in/yaml.v3"

	"rollcall/config/effort"
)

// alertCases is as much of a file of promtool's rule tests as is looked at.
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

// TestEveryAlertHasCases in which it fires and in which it does not.
func TestEveryAlertHasCases(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(HouseRoot, "deploy", "prometheus", "alerts_test.yml"))
	var all alertCases
	if err == nil {
		err = yaml.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
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
		if !fires[a.Alert] || !rests[a.Alert] {
			t.Errorf("%s: a case in which it fires: %v; one in which it does not: %v", a.Alert, fires[a.Alert], rests[a.Alert])
		}
	}
}

// TestAlertsFire checks rules and configuration as an operator does; with -long the cases too, which take a minute.
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
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}
