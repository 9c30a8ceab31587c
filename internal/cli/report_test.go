package cli

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// A report is as wide as the terminal, within bounds.
func TestReportWidth(t *testing.T) {
	for _, c := range []struct {
		env  []string
		most int
	}{
		{nil, 80},
		{[]string{"COLUMNS=50"}, 50},
		{[]string{"COLUMNS=1000"}, 120},
		{[]string{"COLUMNS=nonsense"}, 80},
	} {
		code, out, stderr := try(Process{Args: []string{"plan", "outage"}, Env: c.env})
		if code != 0 {
			t.Fatalf("%v: %s", c.env, stderr)
		}
		_, sentences, _ := strings.Cut(out, "\n\n")
		longest := 0
		for line := range strings.Lines(sentences) {
			longest = max(longest, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
		}
		if longest > c.most || longest < c.most*3/4 {
			t.Errorf("%v: the longest line has %d letters, want about %d", c.env, longest, c.most)
		}
	}
}

// Goal: JSON names its fields and units, keeps their order, and has no number that
// JSON lacks.
func TestFieldsOf(t *testing.T) {
	type inner struct{ _ int }
	text, err := json.Marshal(fieldsOf(struct {
		RoundTrip time.Duration
		TTLMax    int
		Endless   float64
		Hidden    inner
		List      []inner
		P         *int
		AtTTL     struct{ X, _ float64 }
	}{RoundTrip: 1500 * time.Millisecond, TTLMax: 3, Endless: math.Inf(1)}))
	want := `{"round_trip_s":1.5,"ttl_max":3,"endless":null,"list":[],"p":null,"at_ttl":{"x":0}}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v\nwant %s", text, err, want)
	}
}

func TestBarText(t *testing.T) {
	for _, c := range []struct {
		done float64
		took time.Duration
		want string
	}{
		{0, 0, "[..............................]   0% grant"},
		{0.5, 3 * time.Second, "[###############...............]  50% grant, about 3s left"},
		{7, time.Second, "[##############################] 100% grant"},
	} {
		if got := strings.TrimPrefix(barText("grant", c.done, c.took), "\r\x1b[K"); got != c.want {
			t.Errorf("%v: %q, want %q", c.done, got, c.want)
		}
	}
}

// Goal: what a bench file lacks comes from the documents, and says so; a file that
// is useless is refused.
func TestCostsFrom(t *testing.T) {
	name := filepath.Join(t.TempDir(), "costs.json")
	for _, c := range []struct{ text, source, problem string }{
		{`{"endpoints":["a:1"],"operations":[{"name":"renew","cpu_us":7,"bytes":99},
			{"name":"grant","cpu_us":50}],"lease_bytes":300}`, "measured at a:1; keys,", ""},
		{`{"endpoints":["a:1"],"operations":[{"name":"renew","cpu_us":7}]}`, "; grants, memory, " +
			"keys,", ""},
		{`{"operations":[{"name":"renew","cpu_us":0}]}`, "", "no CPU time of renewals"},
		{`{}`, "", "no CPU time of renewals"},
		{`nonsense`, "", "not the output of"},
	} {
		if err := os.WriteFile(name, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := costsFrom(name, 3)
		if c.problem != "" {
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s: %v", c.text, err)
			}
			continue
		}
		if err != nil || !strings.Contains(got.Source, c.source) || got.Renew != 7*time.Microsecond {
			t.Errorf("%s: %+v, %v", c.text, got, err)
		}
	}
}

func TestMetricsPage(t *testing.T) {
	for endpoint, want := range map[string]string{
		"h:1": "http://h:1/metrics", "http://h:1": "http://h:1/metrics",
		"https://h:1": "https://h:1/metrics",
	} {
		if got := metricsPage(endpoint, false); got != want {
			t.Errorf("%s: %s", endpoint, got)
		}
	}
	if got := metricsPage("h:1", true); got != "https://h:1/metrics" {
		t.Errorf("with TLS: %s", got)
	}
}
