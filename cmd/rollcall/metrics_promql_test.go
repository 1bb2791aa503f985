package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// This is as much of PromQL as is needed to find the metrics in an expression, and what
// it says of their labels.

// mention is one selector of an expression.
type mention struct {
	name     string
	matchers []matcher
}

type matcher struct{ label, operator, value string }

// promQL are the names and labels of one expression.
type promQL struct {
	mentions []mention
	grouped  []string // labels in by, without, on, ignoring and group_left
}

var (
	promToken = regexp.MustCompile(`^(?:\s+|[A-Za-z_:][A-Za-z0-9_:]*|"(?:[^"\\]|\\.)*"|` +
		`[0-9]+[smhd]|[0-9.]+(?:[eE][+-]?[0-9]+)?|\[[0-9a-z:]+\]|=~|!~|!=|==|<=|>=|[-+*/%^<>=(){},])`)
	promWord      = regexp.MustCompile(`^[A-Za-z_:]`)
	promFunctions = []string{"abs", "avg_over_time", "bottomk", "count", "histogram_quantile", "increase", "max",
		"max_over_time", "min", "min_over_time", "rate", "scalar", "sum", "time", "topk", "vector"}
	promGrouping  = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
	promOperators = []string{"and", "or", "unless", "bool", "offset"}
)

// promTokens cuts an expression up.
func promTokens(expr string) ([]string, error) {
	var tokens []string
	for rest := expr; rest != ""; {
		token := promToken.FindString(rest)
		if token == "" {
			return nil, fmt.Errorf("not understood at %q", rest)
		}
		rest = rest[len(token):]
		if strings.TrimSpace(token) != "" {
			tokens = append(tokens, token)
		}
	}
	return tokens, nil
}

// readPromQL finds what an expression is about.
func readPromQL(expr string) (promQL, error) {
	var q promQL
	tokens, err := promTokens(expr)
	if err != nil {
		return q, err
	}
	depth := 0
	at := func(i int) string {
		if i < len(tokens) {
			return tokens[i]
		}
		return ""
	}
	for i := 0; i < len(tokens); i++ {
		token := tokens[i]
		switch {
		case token == "(":
			depth++
		case token == ")":
			if depth--; depth < 0 {
				return q, fmt.Errorf("one ) too many")
			}
		case !promWord.MatchString(token) || slices.Contains(promOperators, token):
		case slices.Contains(promGrouping, token):
			if at(i+1) != "(" {
				return q, fmt.Errorf("no ( after %s", token)
			}
			for i += 2; at(i) != ")"; i++ {
				if at(i) == "" {
					return q, fmt.Errorf("no ) after %s", token)
				}
				if at(i) != "," {
					q.grouped = append(q.grouped, at(i))
				}
			}
		case at(i+1) == "(" || at(i+1) == "by" || at(i+1) == "without":
			if !slices.Contains(promFunctions, token) {
				return q, fmt.Errorf("%s is no function that these expressions use", token)
			}
		default:
			m := mention{name: token}
			if at(i+1) == "{" {
				if m.matchers, i, err = readMatchers(tokens, i+2); err != nil {
					return q, err
				}
			}
			q.mentions = append(q.mentions, m)
		}
	}
	if depth != 0 {
		return q, fmt.Errorf("%d ) are missing", depth)
	}
	return q, nil
}

// readMatchers reads from behind a brace to the closing one, and says where that is.
func readMatchers(tokens []string, i int) (found []matcher, end int, err error) {
	for ; i < len(tokens) && tokens[i] != "}"; i++ {
		if tokens[i] == "," {
			continue
		}
		if i+2 >= len(tokens) || !strings.HasPrefix(tokens[i+2], `"`) {
			return nil, i, fmt.Errorf("no matcher at %s", tokens[i])
		}
		found = append(found, matcher{tokens[i], tokens[i+1], strings.Trim(tokens[i+2], `"`)})
		i += 2
	}
	if i >= len(tokens) {
		return nil, i, fmt.Errorf("no closing brace")
	}
	return found, i, nil
}

// fromScraping are the labels that Prometheus itself adds.
var fromScraping = []string{"job", "instance"}

// check says what an expression asks for that no node has.
func (q promQL) check(all map[string]*family) (faults []string) {
	labels := slices.Clone(fromScraping)
	for _, m := range q.mentions {
		if m.name == "up" {
			continue
		}
		f, own := familyOf(all, m.name)
		if f == nil {
			faults = append(faults, "there is no metric "+m.name)
			continue
		}
		own = append(own, fromScraping...)
		labels = append(labels, own...)
		for _, one := range m.matchers {
			if !slices.Contains(own, one.label) {
				faults = append(faults, fmt.Sprintf("%s has no label %s", m.name, one.label))
				continue
			}
			faults = append(faults, f.unheard(one)...)
		}
	}
	for _, label := range q.grouped {
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

// unheard says which values of a closed label a matcher asks for in vain.
func (f *family) unheard(m matcher) (faults []string) {
	if !slices.Contains(closed, m.label) {
		return nil
	}
	values := []string{m.value}
	if strings.HasSuffix(m.operator, "~") {
		values = strings.Split(m.value, "|")
	}
	for _, v := range values {
		if !f.values[m.label][v] {
			faults = append(faults, fmt.Sprintf("%s is never %q in %s", m.label, v, f.name))
		}
	}
	return faults
}

func TestPromQLIsUnderstood(t *testing.T) {
	all := map[string]*family{
		"a_total": {name: "a_total", kind: "counter", labels: []string{"cause"},
			values: map[string]map[string]bool{"cause": {"x": true, "y z": true}}},
		"b_seconds": {name: "b_seconds", kind: "histogram", labels: []string{"route"}},
	}
	for _, c := range []struct{ expr, want string }{
		{`a_total > 5`, ""},
		{`sum by (cause) (rate(a_total{cause=~"x|y z"}[5m])) / 2e3`, ""},
		{`histogram_quantile(0.99, sum by (le, route) (rate(b_seconds_bucket[10m]))) > 1`, ""},
		{`sum(a_total) and on (cause) a_total{job="j"} unless up{job="j"} == 0`, ""},
		{`b_seconds_count / a_total_count`, "there is no metric a_total_count"},
		{`c_total`, "there is no metric c_total"},
		{`a_total{route="/"}`, "a_total has no label route"},
		{`a_total{cause="w"}`, `cause is never "w" in a_total`},
		{`sum by (route) (a_total)`, "nothing here has the label route"},
		{`sum(b_seconds_bucket{le="1"}) + b_seconds_sum{le="1"}`, "b_seconds_sum has no label le"},
		{`sum(a_total`, "1 ) are missing"},
		{`sum a_total`, "there is no metric sum"},
		{`wrong(a_total)`, "wrong is no function that these expressions use"},
	} {
		q, err := readPromQL(c.expr)
		got := strings.Join(q.check(all), "; ")
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.expr, got, c.want)
		}
	}
}
