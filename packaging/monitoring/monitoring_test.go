package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestDashboardsAreWritten checks that the dashboard files match the command's output.
func TestDashboardsAreWritten(t *testing.T) {
	names, err := filepath.Glob("dashboards/*.json")
	if err != nil || len(names) != len(dashboards) {
		t.Errorf("%d files for %d dashboards, %v", len(names), len(dashboards), err)
	}
	for _, d := range dashboards {
		want, err := d.render()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("dashboards", d.file()))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the code says (%v): go run -C packaging ./monitoring "+
				"-out monitoring/dashboards", d.file(), err)
		}
		if !json.Valid(got) {
			t.Errorf("%s is no JSON", d.file())
		}
	}
}

var metric = regexp.MustCompile(`\b(leasehold|etcd|grpc)_[a-z_]+`)

// TestMetricsDocumented checks that every metric used by an alert or a dashboard is in
// docs/metrics.md. A test of the server compares that document with a member's metrics page.
func TestMetricsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known := metric.FindAllString(string(doc), -1)
	rules, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	asked := exprs(t, rules)
	for _, d := range dashboards {
		for _, p := range d.panels {
			for _, q := range p.queries {
				asked = append(asked, q.expr)
			}
		}
	}
	suffix := regexp.MustCompile(`_bucket$`)
	for _, expr := range asked {
		for _, name := range metric.FindAllString(expr, -1) {
			if name = suffix.ReplaceAllString(name, ""); !slices.Contains(known, name) &&
				name != "grpc_method" && name != "grpc_code" {
				t.Errorf("no member has %s, which is asked for in %s", name, expr)
			}
		}
	}
}

// exprs returns the expressions of the rules. It checks that each rule has a summary, an action, a
// test, and a section in the runbook.
func exprs(t *testing.T, rules []byte) (list []string) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations struct {
					Summary, Action string
					Runbook         string `yaml:"runbook_url"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(rules, &file); err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			section := "https://leasehold.dev/docs/monitoring#" + strings.ToLower(r.Alert)
			if r.Annotations.Runbook != section ||
				!bytes.Contains(runbook, []byte("\n### "+r.Alert+"\n")) {
				t.Errorf("%s has the runbook %q, want its own section", r.Alert, r.Annotations.Runbook)
			}
			if r.Annotations.Summary == "" || r.Annotations.Action == "" {
				t.Errorf("%s does not say what happened and what to do", r.Alert)
			}
			if !bytes.Contains(tests, []byte("name: "+r.Alert+"\n")) {
				t.Errorf("%s is not tested", r.Alert)
			}
			list = append(list, r.Expr)
		}
	}
	return list
}
