package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"rollcall/cluster/clustertest"
	"rollcall/config"
	"rollcall/config/effort"
	spans "rollcall/ledger/tracing"
	"rollcall/smtp/smtplab"
)

// family is a metric as a node registers it.
type family struct {
	name, kind, help string
	labels           []string
	values           map[string]map[string]bool // values seen, by label
	series           int
}

// described matches the library's description of a metric.
var described = regexp.MustCompile(`^Desc\{fqName: ("[^"]*"), help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?` +
	`constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// ours reports whether a metric belongs to this program, and not to Go or the process.
func ours(name string) bool { return strings.HasPrefix(name, "rollcall_") }

// addFamilies adds the metrics of a registry to all.
func addFamilies(t *testing.T, all map[string]*family, r *prometheus.Registry) {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		r.Describe(descs)
		close(descs)
	}()
	for d := range descs {
		m := described.FindStringSubmatch(d.String())
		effort.FatalIf(t, m == nil, "no description: %s", d)
		name, err := strconv.Unquote(m[1])
		help, err2 := strconv.Unquote(m[2])
		effort.FatalIf(t, err != nil || err2 != nil, "%s: %v, %v", d, err, err2)
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
	gathered := effort.Must(r.Gather())(t)
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

// allMetrics holds the metrics of a node that worked on a file of the lab, and those that only a node of a cluster
// has. They are collected once for all tests.
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
		n := labNode(t, filepath.Join(t.TempDir(), "data"), func(c *config.Config) {
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
	effort.FatalIf(t, allMetrics.families == nil, "the metrics could not be read: see the first test that needs them")
	return allMetrics.families
}

// unit returns the unit in which a metric counts.
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
		effort.ErrorIf(t, !name.MatchString(f.name), "%s: a name has small letters and single underscores", f.name)
		effort.ErrorIf(t, len(f.help) < 15 || !strings.HasSuffix(f.help, "."),
			"%s: help %q is no sentence", f.name, f.help)
		if isTotal := strings.HasSuffix(f.name, "_total"); f.kind != "" && isTotal != (f.kind == "counter") {
			t.Errorf("%s is a %s: counters, and only they, end in _total", f.name, f.kind)
		}
		effort.ErrorIf(t, f.kind == "histogram" && f.unit() == "number", "%s: a histogram says its unit", f.name)
		effort.ErrorIf(t, f.kind == "" && !strings.HasSuffix(f.name, "_total"),
			"%s has no series before something happens: begin it with what its labels can be", f.name)
	}
}

// labelsKnown are the labels that may exist, and how many values each may have.
var labelsKnown = map[string]int{
	"cause": 9, "class": 5, "check": 12, "direction": 2, "end": 3, "kind": 2, "limit": 11, "listener": 3, "outcome": 5,
	"reason":   40,
	"receiver": 51, "result": 6, "route": 64, "source": 64, "state": 4, "status": 25, "unit": 2, "way": 4, "where": 12,
	"who": 3, "why": 10,
}

// TestMetricsAreBounded: customers and receivers can't cause an unbounded number of series, and no label has an
// address.
func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	families := metricsOf(t)
	effort.ErrorIf(t, allMetrics.total > 2000,
		"%d series after a file of %d addresses, want at most 2000", allMetrics.total, len(allMetrics.file))
	locals := map[string]bool{}
	for _, a := range allMetrics.file {
		local, _, _ := strings.Cut(a, "@")
		locals[local] = true
	}
	for _, f := range families {
		for _, l := range f.labels {
			most, known := labelsKnown[l]
			if !known {
				t.Errorf("%s: label %q is not in labelsKnown", f.name, l)
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

// String is a metric with its labels, as people write them.
func (f *family) String() string {
	if len(f.labels) == 0 {
		return f.name
	}
	return fmt.Sprintf("%s{%s}", f.name, strings.Join(f.labels, ","))
}

var updateMetrics = flag.Bool("update-metrics", false, "write docs/operators/metrics.md anew")

// areas are the chapters of the document. A metric belongs to the first chapter whose prefix it has.
var areas = []struct {
	title    string
	prefixes []string
}{
	{"Receivers, sessions and sources", []string{"rollcall_receiver", "rollcall_smtp_", "rollcall_rcpts",
		"rollcall_sources", "rollcall_probe_"}},
	{"Throttles", []string{"rollcall_throttle_"}},
	{"Verdicts, settlements and leases", []string{"rollcall_outcomes", "rollcall_verdict_", "rollcall_settle",
		"rollcall_lease",
		"rollcall_takeovers", "rollcall_domain", "rollcall_stale", "rollcall_evidence", "rollcall_file",
		"rollcall_verification", "rollcall_workspaces"}},
	{"Ledger", []string{"rollcall_ledger_", "rollcall_audit_"}},
	{"Edge", []string{"rollcall_http_", "rollcall_upload", "rollcall_tls_", "rollcall_sign_ins"}},
	{"DNS", []string{"rollcall_dns_"}},
	{"Identity", []string{"rollcall_identity_", "rollcall_node_"}},
	{"Cluster", []string{"rollcall_cluster_", "rollcall_gossip_"}},
	{"The process", []string{"rollcall_panics_", "rollcall_process_"}},
	{"Others", []string{"rollcall_"}},
}

func TestMetricsDocument(t *testing.T) {
	t.Parallel()
	document := filepath.Join(HouseRoot, "docs", "operators", "metrics.md")
	want := writeMetrics(t)
	if *updateMetrics {
		effort.OK(t, os.WriteFile(document, []byte(want), 0o644))
	}
	got := effort.Must(os.ReadFile(document))(t)
	effort.Is(t, string(got), want,
		"docs/operators/metrics.md is old: run go test ./cmd/rollcall -run MetricsDocument -update-metrics")
}

func writeMetrics(t *testing.T) string {
	t.Helper()
	families := metricsOf(t)
	left := slices.Sorted(maps.Keys(families))
	head := effort.Must(os.ReadFile(filepath.Join("testdata", "metrics_head.md")))(t)
	var b strings.Builder
	b.Write(head)
	for _, area := range areas {
		var rows []string
		left = slices.DeleteFunc(left, func(name string) bool {
			mine := slices.ContainsFunc(area.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
			if mine {
				f := families[name]
				help, _, _ := strings.Cut(f.help, " Of the 50 receivers") // the head says it
				kind := ""
				if f.kind == "histogram" {
					kind = " (histogram)"
				}
				rows = append(rows, fmt.Sprintf("- `%s`%s: %s\n", f, kind, help))
			}
			return mine
		})
		if rows != nil {
			fmt.Fprintf(&b, "\n## %s\n\n%s", area.title, strings.Join(rows, ""))
		}
	}
	return b.String()
}

// promtool can't know whether a node has the metrics and labels of an expression; these functions check that.

var (
	promMention  = regexp.MustCompile(`\b(rollcall_[a-z_]+)(?:\{([^}]*)\})?`)
	promMatcher  = regexp.MustCompile(`(\w+)(=~?|!=|!~)"([^"]*)"`)
	promGrouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right) ?\(([^)]*)\)`)
	promLabel    = regexp.MustCompile(`\w+`)
)

// groupedBy returns the labels after by, without, on, ignoring and group_left.
func groupedBy(expr string) (labels []string) {
	for _, m := range promGrouping.FindAllStringSubmatch(expr, -1) {
		labels = append(labels, promLabel.FindAllString(m[1], -1)...)
	}
	return labels
}

// fromScraping are the labels that Prometheus itself adds.
var fromScraping = []string{"job", "instance"}

// checkExpr returns the metrics and labels of an expression that no node has.
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
				faults = append(faults, f.unreachable(one[1], strings.Split(one[3], "|"))...)
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

// familyOf returns the metric to which a series belongs, and the labels of the series.
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

// closed are labels of which all values exist before anything happens.
var closed = []string{"cause", "kind", "why"}

// unreachable returns a fault for each value that a label of the metric never has.
func (f *family) unreachable(label string, values []string) (faults []string) {
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
		{`sum(rollcall_b_seconds_bucket{le="1"}) + rollcall_b_seconds_sum{le="1"}`, "rollcall_b_seconds_sum has no label le"},
	} {
		effort.Is(t, strings.Join(checkExpr(all, c.expr), "; "), c.want, c.expr)
	}
}

// otlp is a collector that keeps the spans that it gets.
type otlp struct {
	*httptest.Server
	mu    sync.Mutex
	bytes []byte
	spans []*trace.Span
}

func newOTLP(t *testing.T) *otlp {
	t.Helper()
	o := &otlp{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var sent collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &sent)
		}
		effort.ErrorIf(t, err != nil || r.URL.Path != "/v1/traces", "%s: %v", r.URL.Path, err)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.bytes = append(o.bytes, body...)
		for _, resource := range sent.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				o.spans = append(o.spans, scope.GetSpans()...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(o.Close)
	return o
}

// about returns the value that a span has for a key.
func about(s *trace.Span, key spans.Key) *common.AnyValue {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == string(key) {
			return a.GetValue()
		}
	}
	return nil
}

// TestTracesTellWhatTookTimeAndNoAddress sends a file through a node that traces everything, from create to download.
// No byte that the collector gets belongs to an address.
func TestTracesTellWhatTookTimeAndNoAddress(t *testing.T) {
	t.Parallel()
	o, folder := newOTLP(t), filepath.Join(t.TempDir(), "data")
	n := labNode(t, folder, func(c *config.Config) {
		openedWide(t, c, false)
		c.Tracing = config.Tracing{Endpoint: strings.TrimPrefix(o.URL, "http://"), Sample: 1}
	})
	var file strings.Builder
	var secret []string
	for i, box := range []string{"zqanna", "zqgone-unknown", "zqbert", "zqcarl"} {
		secret = append(secret, box) // shorter texts could appear by chance in a number of a span
		for j := range 5 {
			local := fmt.Sprintf("%s.%d%d", box, i, j)
			secret = append(secret, local)
			fmt.Fprintf(&file, "%s@traced-%s.test\n", local, []string{"clean", "onercpt"}[j%2])
		}
	}
	addresses := int64(strings.Count(file.String(), "@"))
	customer, text := customerOf(t, n, folder, "traced", addresses), "email\n"+file.String()
	made := effort.Must(customer.Create(t.Context(), uuid.New(), int64(len(text)), "a.csv"))(t)
	target, reader := made.Upload.URL, strings.NewReader(text)
	effort.OK(t, customer.Upload(t.Context(), target, reader, reader.Size(), func(int64) {}))
	end(t.Context(), customer, made.ID)
	effort.OK(t, writeResults(t.Context(), customer, made.ID, io.Discard))
	secret = append(secret, customer.Key, target[strings.LastIndex(target, "/")+1:])
	if err := n.Stop(t.Context()); err != nil { // sessions end, and then the last spans are sent
		t.Fatal(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range secret {
		effort.ErrorIf(t, bytes.Contains(o.bytes, []byte(s)), "the collector was told %q", s)
	}
	o.check(t, made.ID, addresses)
}

// check looks for each kind of span, its attributes, and its child spans.
func (o *otlp) check(t *testing.T, id string, addresses int64) {
	t.Helper()
	byName, byID, settled, asked := map[string]int{}, map[string]string{}, int64(0), int64(0)
	for _, s := range o.spans {
		byName[s.GetName()]++
		byID[string(s.GetSpanId())] = s.GetName()
	}
	parents := map[string]bool{}
	for _, s := range o.spans {
		parents[byID[string(s.GetParentSpanId())]+" > "+s.GetName()] = true
		verification := about(s, spans.Verification).GetStringValue()
		switch spans.Name(s.GetName()) {
		case spans.Settle:
			settled += about(s, spans.Addresses).GetIntValue()
		case spans.Session:
			asked += about(s, spans.Rcpts).GetIntValue()
			if about(s, spans.Receiver).GetStringValue() == "" || about(s, spans.Host).GetStringValue() == "" {
				t.Errorf("a session's span has no receiver or host: %v", s.GetAttributes())
			}
		}
		if verification != "" && verification != id {
			t.Errorf("%s is about the verification %q, want %q", s.GetName(), verification, id)
		}
	}
	effort.ErrorIf(t, settled != addresses || asked < addresses,
		"spans tell of %d addresses settled and %d RCPTs, want %d and at least that", settled, asked, addresses)
	for _, name := range []spans.Name{spans.Request, spans.Upload, spans.Append, spans.Lease, spans.Intake,
		spans.Settle, spans.Session, spans.LedgerWrite, spans.LedgerRead} {
		effort.Not(t, byName[string(name)], 0, "spans of", name, byName)
	}
	for _, wanted := range []string{"http.request > ledger.write", "http.request > ledger.read",
		"upload.request > upload.append", "upload.append > ledger.write", "settle > ledger.write"} {
		effort.ErrorIf(t, !parents[wanted], "nothing is %s; there are %v", wanted, parents)
	}
}
