package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/load"
)

// TestMain lets the test binary act as the ceiling and as the process that holds a cache. The
// compare command does the same.
func TestMain(m *testing.M) {
	if len(os.Args) >= 3 && os.Args[1] == "-serve-ceiling" {
		log := ""
		if len(os.Args) == 5 { // "-ceiling-log" and the file
			log = os.Args[4]
		}
		fmt.Fprintln(os.Stderr, ServeCeiling(context.Background(), os.Args[2], log))
		os.Exit(1)
	}
	if len(os.Args) == 3 && os.Args[1] == "-hold-cache" {
		fmt.Fprintln(os.Stderr, HoldCache(context.Background(), os.Args[2]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestParseStat checks that a process name can contain parentheses and spaces.
func TestParseStat(t *testing.T) {
	line := "42 (a) b) S 1 2 3 4 5 6 7 8 9 10 300 45 0 0 20 0 9 0 100 5000 77 1\n"
	got, err := parseStat([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	want := load.Usage{CPU: 3450 * time.Millisecond, RSS: 77 * int64(os.Getpagesize())}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, bad := range []string{"", "42 (a) S 1 2", strings.Replace(line, "300", "x", 1)} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q is taken for a stat line", bad)
		}
	}
}

// TestOwnUsage checks that the right fields are read. This process must have used some CPU time and
// a few megabytes of memory.
func TestOwnUsage(t *testing.T) {
	// Wall time is not enough, because a busy machine may give this process no CPU time.
	for used := time.Duration(0); used < 60*time.Millisecond; {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			t.Fatal(err)
		}
		used = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	u, err := readUsage(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if u.CPU < 20*time.Millisecond || u.RSS < 1<<20 || u.RSS > 1<<34 {
		t.Errorf("%+v", u)
	}
}

// TestOrder checks that targets alternate within a workload.
func TestOrder(t *testing.T) {
	p := Plan{
		Targets:   []Target{{Name: "a"}, {Name: "b"}, {Name: "c", Ceiling: true}},
		Workloads: []Workload{{Name: "x", Ceiling: true}, {Name: "y", Once: true}},
		Rounds:    2, OnceRounds: 1, Params: Params{Members: 1},
	}
	list, series := p.runs()
	var got []string
	for _, r := range list {
		got = append(got, fmt.Sprintf("%s%s%d", r.w.Name, r.t.Name, r.round))
		if s := series[r.series]; s.Workload != r.w.Name || s.Target != r.t.Name {
			t.Errorf("%v goes to the series of %s on %s", r, s.Workload, s.Target)
		}
	}
	const want = "xa1 xb1 xc1 xa2 xb2 xc2 ya1 yb1"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("order %s, want %s", s, want)
	}
}

// TestMeets checks which servers can run a workload.
func TestMeets(t *testing.T) {
	open := func([]string) (Session, error) { return nil, nil }
	plain, ceiling := Target{Name: "plain"}, Target{Name: "ceiling", Ceiling: true}
	own, foreign := Target{Name: "own", Open: open}, Target{
		Name: "foreign", Open: open, Foreign: &Foreign{},
	}
	for _, c := range []struct {
		w       Workload
		members int
		want    string
	}{
		{Workload{}, 1, "plain own"},
		{Workload{Ceiling: true}, 1, "plain ceiling own"},
		{Workload{Sessions: 1}, 1, "own foreign"},
		{Workload{Sessions: 1}, 3, "own"},
		{Workload{Sessions: 8, Granting: true}, 1, "own"},
	} {
		var got []string
		for _, target := range []Target{plain, ceiling, own, foreign} {
			if c.w.meets(target, c.members) {
				got = append(got, target.Name)
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%+v with %d members meets %s, want %s", c.w, c.members, s, c.want)
		}
	}
}

func series(name string, rates ...float64) *Series {
	s := &Series{Workload: "w", Target: name}
	for _, r := range rates {
		s.Rounds = append(s.Rounds, Result{Rate: r, More: []Metric{{"late", r / 2, "ms"}}})
	}
	return s
}

// TestMedianAndRatio checks that ratios are computed between same-numbered rounds. The expected
// results were computed by hand.
func TestMedianAndRatio(t *testing.T) {
	a, b := series("leasehold", 30, 10, 20), series("etcd", 10, 10, 5)
	if m := a.Median(); m.Rate != 20 || m.More[0].Value != 10 {
		t.Errorf("median %+v", m)
	}
	if got := a.ratio(b); got != (Spread{3, 1, 4}) {
		t.Errorf("ratio %+v", got)
	}
	if got := spreadOf([]float64{4, 1}); got.Median != 2.5 {
		t.Errorf("median of two is %v", got)
	}
	if got := series("x").ratio(a); got != (Spread{}) {
		t.Errorf("ratio of nothing is %v", got)
	}
}

// TestReports checks that the table and the results file contain the same figures.
func TestReports(t *testing.T) {
	list := []*Series{series("leasehold", 30, 10, 20), series("etcd", 10, 10, 5)}
	var table bytes.Buffer
	if err := WriteTable(&table, Plan{}, list); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^w +leasehold +20 \[10\.\.30\] .* 3\.00 \[1\.00\.\.4\.00\] +- +late 10 ms$`,
		`(?m)^ +etcd +10 \[5\.\.10\] `,
	} {
		if !regexp.MustCompile(want).Match(table.Bytes()) {
			t.Errorf("no line like %s in\n%s", want, table.String())
		}
	}
	var text bytes.Buffer
	if err := WriteJSON(&text, Plan{}, list); err != nil {
		t.Fatal(err)
	}
	var report struct {
		Results []struct {
			Target string
			Rounds []Result
			Ratio  map[string]Spread
		}
	}
	if err := json.Unmarshal(text.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if r := report.Results[0]; r.Ratio["etcd"].Median != 3 || len(r.Rounds) != 3 {
		t.Errorf("%+v", r)
	}
}

// TestProgress checks that each step is printed on its own line if the output is not a terminal.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	show := ProgressBar(&out, false)
	show(Step{0, 2, "grant/64", "etcd", 1})
	show(Step{1, 2, "grant/64", "ceiling", 1})
	show(Step{Done: 2, Total: 2})
	got := out.String()
	if strings.Count(got, "\n") != 3 || !strings.Contains(got, "2/2 grant/64 on ceiling, round 1") {
		t.Errorf("%q", got)
	}
}

// TestOpenLoop checks that a slow operation also increases the latency of the operations that
// became due while it ran. Latency is measured from the time the operation was due.
func TestOpenLoop(t *testing.T) {
	var h load.Histogram
	err := openLoop(t.Context(), 20, time.Millisecond, &h,
		func(context.Context, int, int) error { return nil })
	if err != nil || h.Count() != 20 {
		t.Errorf("%d operations, error %v", h.Count(), err)
	}
	boom := errors.New("boom")
	err = openLoop(t.Context(), 3, time.Microsecond, &h,
		func(context.Context, int, int) error { return boom })
	if !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	var none load.Histogram
	err = openLoop(done, 1000, time.Hour, &none,
		func(context.Context, int, int) error { return nil })
	if err != nil || none.Count() > 1 {
		t.Errorf("%d operations after the end, error %v", none.Count(), err)
	}
}

// TestAgainstCeiling briefly runs every workload that needs no store against the real ceiling
// process.
func TestAgainstCeiling(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := Plan{
		Params: Params{Duration: 200 * time.Millisecond, Conns: 2, Members: 1},
		Targets: []Target{{
			Name: "ceiling", Path: self, Ceiling: true,
		}, {
			Name: "synced", Path: self, Ceiling: true, Synced: true,
		}},
		Rounds: 1, OnceRounds: 1,
	}
	for _, w := range Workloads() {
		if w.Ceiling && w.Name != "keepalive/8" { // that one takes seconds
			p.Workloads = append(p.Workloads, w)
		}
	}
	list, err := Run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		m := s.Median()
		if m.Rate <= 0 || m.P99 <= 0 || m.RSS < 1 {
			t.Errorf("%s: %+v", s.Workload, m)
		}
	}
}

// TestServerThatEnds checks that the error for a target that fails to start includes its output.
func TestServerThatEnds(t *testing.T) {
	target := Target{Name: "sh", Path: "/bin/sh", Args: []string{"-c", "echo no luck >&2; exit 3"}}
	_, err := target.Start(t.Context(), 1)
	if err == nil || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("error %v", err)
	}
}

// TestOverloaded checks that rejections due to overload are distinguished from other errors,
// whether they have etcd's code or the correct one.
func TestOverloaded(t *testing.T) {
	for err, want := range map[error]bool{
		rpctypes.ErrGRPCRequestTooManyRequests:                             true,
		status.Error(codes.Unknown, "etcdserver: too many requests"):       true,
		status.Error(codes.ResourceExhausted, "message larger than limit"): true,
		status.Error(codes.Unavailable, "etcdserver: no leader"):           false,
		errors.New("boom"): false,
	} {
		if overloaded(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
	if overloaded(nil) {
		t.Error("success is taken for a refusal")
	}
}
