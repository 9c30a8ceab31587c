package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPictures draws the series of a Prometheus server that has a single metric. Missing data is
// reported unless it is optional. An error from Prometheus is reported as well.
func TestPictures(t *testing.T) {
	fail := false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch q := r.FormValue("query"); {
		case fail:
			fmt.Fprint(w, `{"status":"error","error":"no such function"}`)
		case q == `up{job="j"}`:
			fmt.Fprintf(w, `{"data":{"result":[`+
				`{"metric":{"instance":"one<"},"values":[[%d,"1"],[%d,"NaN"]]},`+
				`{"metric":{"instance":"none"},"values":[[%[1]d,"NaN"]]}]}}`,
				time.Now().Unix()-9, time.Now().Unix())
		default:
			fmt.Fprint(w, `{"data":{"result":[]}}`)
		}
	}))
	defer s.Close()
	p := pictures{s.URL, "j", time.Minute, "10s", regexp.MustCompile("^Alarms$")}
	dir := t.TempDir()
	lacking, err := p.write(dir)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(lacking, "overview: Members up") ||
		slices.Contains(lacking, "overview: Alarms") || !slices.Contains(lacking, "caches: Open caches") {
		t.Errorf("lacking: %q", lacking)
	}
	text, err := os.ReadFile(filepath.Join(dir, "dashboard-overview.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if svg := string(text); !strings.Contains(svg, ">one&lt;<") || strings.Contains(svg, ">none<") {
		t.Errorf("wrong series: %s", svg)
	}
	fail = true
	if _, err := p.write(dir); err == nil || !strings.Contains(err.Error(), "no such function") {
		t.Errorf("an error of Prometheus: %v", err)
	}
}
