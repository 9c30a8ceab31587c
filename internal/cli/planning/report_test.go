package planning

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFieldsOf checks that the JSON output names its fields and units, preserves their order, and
// does not contain numbers that JSON cannot represent.
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

// TestCostsFrom checks that costs missing from a bench file are taken from the documentation, and
// that the output says so. A file without any costs is rejected.
func TestCostsFrom(t *testing.T) {
	name := filepath.Join(t.TempDir(), "costs.json")
	for _, c := range []struct{ text, source, problem string }{
		{`{"endpoints":["a:1"],"operations":[{"name":"renew","cpu_us":7,"bytes":99},
			{"name":"grant","cpu_us":50}],"lease_bytes":300}`, "measured at a:1; keys,", ""},
		{`{"endpoints":["a:1"],"operations":[{"name":"renew","cpu_us":7}]}`, "; grants, memory, " +
			"keys,", ""},
		{`{"operations":[{"name":"renew","cpu_us":0}]}`, "", "no CPU time for renewals"},
		{`{}`, "", "no CPU time for renewals"},
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
