package server

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/internal/logger"
	"leasehold.dev/internal/tracing"
	"leasehold.dev/test/virtual"
)

var updateFlag = flag.Bool("update", false, "write docs/metrics.md anew")

var described = regexp.MustCompile(
	`fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)",(?: unit: "[^"]*",)? ` +
		`constLabels: \{(.*)\}, variableLabels: \{([^}]*)\}`)

// docs/metrics.md has every metric of a member, with its labels and what its help says.
func TestMetricsDocument(t *testing.T) { virtual.Test(t, testMetricsDocument) }

func testMetricsDocument(t *testing.T) {
	c := testConfig(t.TempDir())
	none := func() uint64 { return 0 }
	c.HTTP.Collectors = slices.Concat( // those of the command
		logger.Collectors(none, none), tracing.Collectors())
	r := run(t, c)
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		r.core.metrics.registry.Describe(descs)
	}()
	var lines []string
	for d := range descs {
		x := described.FindStringSubmatch(d.String())
		if x == nil {
			t.Fatalf("not understood: %s", d)
		}
		name, help, labels := x[1], x[2], x[4]
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue // those of every Go program
		}
		if label, _, ok := strings.Cut(x[3], "="); ok {
			labels = label // which has one value here, or several
		}
		if labels != "" {
			labels = "{" + labels + "}"
		}
		lines = append(lines, fmt.Sprintf("- `%s%s`: %s", name, labels, help))
	}
	slices.Sort(lines)
	want := "# Metrics\n\n" +
		"What `/metrics` has, beside what every Go program has. It is made from the code:\n" +
		"`go test ./server -run TestMetricsDocument -update`.\n\n" +
		strings.Join(wrapped(slices.Compact(lines)), "\n") + "\n"
	const file = "../docs/metrics.md"
	if *updateFlag {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is not what the code says (%v): run this test with -update", file, err)
	}
}

// wrapped breaks lines at 120 columns.
func wrapped(lines []string) (out []string) {
	for _, l := range lines {
		for len(l) > 120 {
			at := strings.LastIndexByte(l[:121], ' ')
			out, l = append(out, l[:at]), "  "+l[at+1:]
		}
		out = append(out, l)
	}
	return out
}
