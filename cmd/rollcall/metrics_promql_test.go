package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What promtool can't know of an expression: whether a node has its metrics and labels.

var (
	promMention  = regexp.MustCompile(`\b(rollcall_[a-z_]+)(?:\{([^}]*)\})?`)
	promMatcher  = regexp.MustCompile(`(\w+)(=~?|!=|!~)"([^"]*)"`)
	promGrouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right) ?\(([^)]*)\)`)
	promLabel    = regexp.MustCompile(`\w+`)
)

// groupedBy are the labels in by, without, on, ignoring and group_left.
func groupedBy(expr string) (labels []string) {
	for _, m := range promGrouping.FindAllStringSubmatch(expr, -1) {
		labels = append(labels, promLabel.FindAllString(m[1], -1)...)
	}
	return labels
}

// fromScraping are the labels that Prometheus itself adds.
var fromScraping = []string{"job", "instance"}

// checkExpr returns what an expression asks for that no node has.
func checkExpr(all map[string]*family, expr string) (faults []string) {
	labels := slices.Clone(fromScraping)
	for _, m := range promMention.FindAllStringSubmatch(expr, -1) {
		f, own := familyOf(all, m[1])
		if f == nil {
			faults = append(faults, "there is no metric "+m[1])
			continue
		}
		own = append(own, fromScraping...)
		labels = append(labels, own...)
		for _, one := range promMatcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(own, one[1]) {
				faults = append(faults, fmt.Sprintf("%s has no label %s", m[1], one[1]))
			} else if slices.Contains(closed, one[1]) {
				faults = append(faults, f.unheard(one[1], strings.Split(one[3], "|"))...)
			}
		}
	}
	for _, label := range groupedBy(expr) {
		if !slices.Contains(labels, label) {
			faults = append(faults, "nothing here has the label "+label)
		}
	}
	return faults
}

// familyOf finds the metric that a series belongs to, and the labels of the series.
func familyOf(all map[string]*family, series string) (*family, []string) {
	if f := all[series]; f != nil {
		return f, slices.Clone(f.labels)
	}
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		if name, ok := strings.CutSuffix(series, part); ok && all[name] != nil && all[name].kind == "histogram" {
			labels := slices.Clone(all[name].labels)
			if part == "_bucket" {
				labels = append(labels, "le")
			}
			return all[name], labels
		}
	}
	return nil, nil
}

// closed are labels whose values are all there before anything happens.
var closed = []string{"cause", "kind", "why"}

// unheard returns the values that a label of the metric never has.
func (f *family) unheard(label string, values []string) (faults []string) {
	for _, v := range values {
		if !f.values[label][v] {
			faults = append(faults, fmt.Sprintf("%s is never %q in %s", label, v, f.name))
		}
	}
	return faults
}

func TestExpressionsAreChecked(t *testing.T) {
	all := map[string]*family{
		"rollcall_a_total": {name: "rollcall_a_total", kind: "counter", labels: []string{"cause"},
			values: map[string]map[string]bool{"cause": {"x": true, "y z": true}}},
		"rollcall_b_seconds": {name: "rollcall_b_seconds", kind: "histogram", labels: []string{"route"}},
	}
	for _, c := range []struct{ expr, want string }{
		{`sum by (cause) (rate(rollcall_a_total{cause=~"x|y z"}[5m])) / 2e3`, ""},
		{`histogram_quantile(0.99, sum by (le, route) (rate(rollcall_b_seconds_bucket[10m]))) > 1`, ""},
		{`sum(rollcall_a_total) and on (cause) rollcall_a_total{job="j"} unless up{job="j"} == 0`, ""},
		{`rollcall_b_seconds_count / rollcall_a_total_count`, "there is no metric rollcall_a_total_count"},
		{`rollcall_a_total{route="/"}`, "rollcall_a_total has no label route"},
		{`rollcall_a_total{cause="w"}`, `cause is never "w" in rollcall_a_total`},
		{`sum by (route) (rollcall_a_total)`, "nothing here has the label route"},
		{`sum(rollcall_b_seconds_bucket{le="1"}) + rollcall_b_seconds_sum{le="1"}`,
			"rollcall_b_seconds_sum has no label le"},
	} {
		if got := strings.Join(checkExpr(all, c.expr), "; "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.expr, got, c.want)
		}
	}
}
