package main

import (
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"rollcall/cluster/clustertest"
	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/smtp/smtplab"
)

// family is a metric as a node registers it.
type family struct {
	name, kind, help string
	labels           []string
	values           map[string]map[string]bool // by label, those that were seen
	series           int
}

// described is how the library writes a description.
var described = regexp.MustCompile(`^Desc\{fqName: ("[^"]*"), help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?` +
	`constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// ours reports whether a metric is one of this program, and not of Go or of the process.
func ours(name string) bool { return strings.HasPrefix(name, "rollcall_") }

// addFamilies adds what a registry has to all.
func addFamilies(t *testing.T, all map[string]*family, r *prometheus.Registry) {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		r.Describe(descs)
		close(descs)
	}()
	for d := range descs {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("no description: %s", d)
		}
		name, err := strconv.Unquote(m[1])
		help, err2 := strconv.Unquote(m[2])
		if err != nil || err2 != nil {
			t.Fatalf("%s: %v, %v", d, err, err2)
		}
		f := &family{name: name, help: help, values: map[string]map[string]bool{}}
		for _, list := range m[3:] {
			for label := range strings.SplitSeq(list, ",") {
				if label, _, _ = strings.Cut(label, "="); label != "" {
					f.labels = append(f.labels, label)
				}
			}
		}
		if all[name] == nil && ours(name) {
			all[name] = f
		}
	}
	gathered, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gathered {
		if f := all[g.GetName()]; f != nil {
			f.kind = strings.ToLower(g.GetType().String())
			f.add(g)
		}
	}
}

// add notes the series of a metric.
func (f *family) add(g *dto.MetricFamily) {
	for _, m := range g.GetMetric() {
		f.series++
		if h := m.GetHistogram(); h != nil {
			f.series += len(h.GetBucket()) + 2
		}
		for _, l := range m.GetLabel() {
			if f.values[l.GetName()] == nil {
				f.values[l.GetName()] = map[string]bool{}
			}
			f.values[l.GetName()][l.GetValue()] = true
		}
	}
}

// allMetrics are the metrics of a node that worked on a file of the lab, and those that
// only a node of a cluster has. They are found once for all tests.
var allMetrics struct {
	once     sync.Once
	families map[string]*family
	total    int      // series of the node that worked
	file     []string // the addresses that it worked on
}

func metricsOf(t *testing.T) map[string]*family {
	t.Helper()
	effort.NotShort(t, "a whole node")
	allMetrics.once.Do(func() {
		n := labNode(t, filepath.Join(t.TempDir(), "data"), io.Discard, func(c *config.Config) {
			openedWide(t, c, false)
		})
		allMetrics.file = smtplab.Sample(11, 500, 150)
		v := submit(t, n, []byte("email\n"+strings.Join(allMetrics.file, "\n")+"\n"), 500)
		finish(t, n, v, 2*time.Minute)
		found := map[string]*family{}
		addFamilies(t, found, n.Registry)
		for _, f := range found {
			allMetrics.total += f.series
		}
		w := clustertest.Open(t, 1, func(_ int, o *clustertest.Options) { o.Peers.Identity.Register(o.Registerer) })
		w.MustJoin(0)
		addFamilies(t, found, w.Node(0).Metrics)
		allMetrics.families = found
	})
	if allMetrics.families == nil {
		t.Fatal("the metrics could not be read: see the first test that needs them")
	}
	return allMetrics.families
}

// unit is what a metric counts in.
func (f *family) unit() string {
	switch {
	case strings.HasSuffix(f.name, "_timestamp_seconds"):
		return "Unix seconds"
	case strings.HasSuffix(f.name, "_per_second"):
		return "per second"
	case strings.Contains(f.name, "_seconds"):
		return "seconds"
	case strings.Contains(f.name, "_bytes"):
		return "bytes"
	case strings.HasSuffix(f.name, "_ratio"):
		return "0 to 1"
	}
	return "number"
}

func TestMetricsAreNamedAsPrometheusWants(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^rollcall_[a-z]+(_[a-z]+)*$`)
	for _, f := range metricsOf(t) {
		if !name.MatchString(f.name) {
			t.Errorf("%s: a name has small letters and single underscores", f.name)
		}
		if len(f.help) < 15 || !strings.HasSuffix(f.help, ".") {
			t.Errorf("%s: help %q is no sentence", f.name, f.help)
		}
		if isTotal := strings.HasSuffix(f.name, "_total"); f.kind != "" && isTotal != (f.kind == "counter") {
			t.Errorf("%s is a %s: counters, and only they, end in _total", f.name, f.kind)
		}
		if f.kind == "histogram" && f.unit() == "number" {
			t.Errorf("%s: a histogram says its unit", f.name)
		}
		if f.kind == "" && !strings.HasSuffix(f.name, "_total") {
			t.Errorf("%s has no series before something happens: begin it with what its labels can be", f.name)
		}
	}
}

// labelsKnown are the labels there may be, and how many values each may have.
var labelsKnown = map[string]int{
	"cause": 9, "class": 5, "check": 12, "direction": 2, "end": 3, "kind": 2, "limit": 11, "listener": 3, "outcome": 5,
	"reason":   40,
	"receiver": 51, "result": 6, "route": 64, "source": 64, "state": 4, "status": 25, "unit": 2, "way": 4, "where": 12,
	"who": 3, "why": 10,
}

// TestMetricsAreBounded: nothing that customers or receivers choose makes series without
// end, and no label has an address.
func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	families := metricsOf(t)
	if allMetrics.total > 2000 {
		t.Errorf("%d series after a file of %d addresses, want at most 2000", allMetrics.total, len(allMetrics.file))
	}
	locals := map[string]bool{}
	for _, a := range allMetrics.file {
		local, _, _ := strings.Cut(a, "@")
		locals[local] = true
	}
	for _, f := range families {
		for _, l := range f.labels {
			most, known := labelsKnown[l]
			if !known {
				t.Errorf("%s: label %q is not among those that are known to be bounded", f.name, l)
			}
			if n := len(f.values[l]); n > most {
				t.Errorf("%s: label %s has %d values, at most %d are wanted", f.name, l, n, most)
			}
			for value := range f.values[l] {
				if strings.Contains(value, "@") || len(value) > 100 || locals[value] && l != "receiver" {
					t.Errorf("%s: label %s has the value %q", f.name, l, value)
				}
			}
		}
	}
}

// sortedNames are the names of metrics in order.
func sortedNames(families map[string]*family) []string {
	var names []string
	for name := range families {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// String is a metric and its labels as people write them.
func (f *family) String() string {
	if len(f.labels) == 0 {
		return f.name
	}
	return fmt.Sprintf("%s{%s}", f.name, strings.Join(f.labels, ","))
}
