package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// updateMetrics writes the document of the metrics anew.
var updateMetrics = flag.Bool("update-metrics", false, "write docs/operators/metrics.md anew")

// areas are the chapters of the document, by how names begin; the first that fits.
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
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("docs/operators/metrics.md is old: run go test ./cmd/rollcall -run MetricsDocument -update-metrics")
	}
}

// writeMetrics writes the document.
func writeMetrics(t *testing.T) string {
	t.Helper()
	families := metricsOf(t)
	left := sortedNames(families)
	head, err := os.ReadFile(filepath.Join("testdata", "metrics_head.md"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.Write(head)
	for _, area := range areas {
		var rows []string
		left = slices.DeleteFunc(left, func(name string) bool {
			mine := slices.ContainsFunc(area.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
			if mine {
				f := families[name]
				help, _, _ := strings.Cut(f.help, " Of 50 receivers") // the head says it
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
