package compare

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestAtRandom checks that random moments come at the rate that was asked for, within what a
// thousand of them may be off, and end with the context.
func TestAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		n := 0
		err := atRandom(ctx, 10, func(context.Context) error { n++; return nil })
		if err != nil || n < 800 || n > 1200 {
			t.Errorf("%d times, want about 1000: %v", n, err)
		}
		if err := atRandom(t.Context(), 0, nil); err != nil {
			t.Error(err)
		}
	})
}

// TestScrape adds the lines of one metric, and says if there are none.
func TestScrape(t *testing.T) {
	page := "# HELP a_total x\na_total{b=\"c\"} 3\na_total{b=\"d\"} 4.5\nother 9\n"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(page))
	}))
	defer s.Close()
	if v, err := scrape(t.Context(), s.URL, "a_total"); v != 7.5 || err != nil {
		t.Error(v, err)
	}
	if _, err := scrape(t.Context(), s.URL, "none_total"); err == nil {
		t.Error("a metric that is not there is taken for 0")
	}
}

// TestLess takes the writes' CPU off and divides by reads.
func TestLess(t *testing.T) {
	w := work{reads: 100, cpu: 0.3, messages: 50}
	if err := w.less(work{cpu: 0.1}); err != nil || w.cpu < 0.00199 || w.cpu > 0.00201 ||
		w.messages != 0.5 {
		t.Error(w, err)
	}
	if err := (&work{}).less(work{}); err == nil {
		t.Error("no reads have a cost")
	}
}

// TestCurve writes medians of the series that has a curve, and says if none has.
func TestCurve(t *testing.T) {
	round := func(m float64) Result { return Result{Curve: []TermPoint{{0.5, m, 2 * m}}} }
	list := []*Series{{Rounds: []Result{{}}}, {Rounds: []Result{round(1), round(5), round(3)}}}
	var out strings.Builder
	if err := WriteCurve(&out, list); err != nil || !strings.HasSuffix(out.String(),
		"\n0.5,3.00,6.00\n") {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := WriteCurve(&out, list[:1]); err == nil {
		t.Error("a curve of nothing")
	}
}

// TestSheetOfUnequals shows a figure that only one server has.
func TestSheetOfUnequals(t *testing.T) {
	both, own := Metric{"both", 1, "ms"}, Metric{"own", 2, "ns"}
	list := []*Series{
		{Workload: "w", Target: "etcd", Rounds: []Result{{More: []Metric{both}}}, Sheet: true},
		{Workload: "w", Target: "leasehold", Rounds: []Result{{More: []Metric{own, both}}}, Sheet: true},
	}
	var out strings.Builder
	if err := WriteTable(&out, Plan{}, list); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(out.String()), " ")
	if !strings.Contains(got, "own, ns - 2 both, ms 1 1") {
		t.Error(out.String())
	}
}
