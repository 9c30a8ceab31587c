package top

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"

	"leasehold.dev/client/leases"
	"leasehold.dev/internal/cli/cluster"
	"leasehold.dev/lease"
)

// at returns a snapshot with two leases and two members after the counters have increased n times.
func at(n int) snapshot {
	read := func(sync int) metrics {
		return metricsIn(fmt.Appendf(nil, `# TYPE leasehold_leases gauge
leasehold_leases 2
# TYPE leasehold_leases_granted_total counter
leasehold_leases_granted_total %d
# TYPE leasehold_lease_renewals_total counter
leasehold_lease_renewals_total{outcome="failed"} 9
leasehold_lease_renewals_total{outcome="renewed"} %d
# TYPE leasehold_log_sync_duration_seconds histogram
leasehold_log_sync_duration_seconds_bucket{le="0.002"} %d
leasehold_log_sync_duration_seconds_bucket{le="0.016"} %[4]d
leasehold_log_sync_duration_seconds_bucket{le="+Inf"} %[4]d
leasehold_log_sync_duration_seconds_count %[4]d
`, 10*n, 4*n, sync, 100*n))
	}
	return snapshot{
		State: cluster.State{
			Verdict: "degraded", Reasons: []string{"m2 is 7 entries behind"},
			Members: []*cluster.Member{
				{Name: "m1", ID: "1", Role: "leader", Release: "1.2.3"},
				{Name: "m2", ID: "2", Role: "voter", Behind: 7},
			},
		},
		at:      time.Now(),
		metrics: map[string]metrics{"1": read(100 * n), "2": read(50 * n)},
		leases: []leases.Info{
			{ID: 0x2a, Name: "jobs/\x1bb", Owner: "host-b", TTL: time.Minute, Remaining: 50 * time.Second},
			{ID: 0x2b, Name: "jobs/a", Owner: "host-a", TTL: time.Minute, Remaining: 12 * time.Second},
		},
	}
}

func press(m *model, keys string) tea.Cmd {
	var cmd tea.Cmd
	for _, k := range keys {
		_, cmd = m.Update(tea.KeyPressMsg{Code: k, Text: string(k)})
	}
	return cmd
}

// shows fails the test unless the screen contains the given texts in order.
func shows(t *testing.T, m *model, want ...string) {
	t.Helper()
	rest := m.View().Content
	for _, w := range want {
		_, after, ok := strings.Cut(rest, w)
		if !ok {
			t.Fatalf("%q is missing, or before what should come first:\n%s", w, m.View().Content)
		}
		rest = after
	}
	if strings.Contains(m.View().Content, "\x1bb") {
		t.Errorf("a name reaches the terminal as it is")
	}
}

// TestScreen checks that the screen shows rates, the p99 of the slowest member, and leases ordered
// by expiry. It counts down only while the cluster answers.
func TestScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel("a:2379", "leases", time.Second, nil)
		shows(t, m, "a:2379  querying")
		m.Update(tea.WindowSizeMsg{Width: 100, Height: 20})
		m.Update(at(1))
		shows(t, m, "granted -")
		time.Sleep(2 * time.Second)
		m.Update(at(2))
		shows(t, m, "degraded  members 2 of 2  leader m1", "leases 2  granted 5.0/s  renewed 4.0/s",
			"sync p99 16ms", "lag 7", "m2 is 7 entries behind", "1 LEASES", "jobs/a", "host-a", "expiring",
			"12s", `jobs/\x1bb`, "alive", "50s")
		time.Sleep(3 * time.Second)
		m.Update(second{})
		shows(t, m, "9s", "47s")

		lost := snapshot{
			State: cluster.State{Verdict: "down"}, at: time.Now(), err: "connection refused",
		}
		m.Update(lost)
		time.Sleep(4 * time.Second)
		m.Update(second{})
		shows(t, m, "no response for 4s: connection refused", "was 12s", "was 50s")
		m.Update(at(3))
		shows(t, m, "jobs/a", "expiring", "12s")
	})
}

// TestSlowest checks that a member whose syncs take longer than the histogram can tell counts as the
// slowest, not as unknown.
func TestSlowest(t *testing.T) {
	m := newModel("a:2379", "leases", time.Second, nil)
	m.Update(tea.WindowSizeMsg{Width: 100, Height: 20})
	s := at(1)
	*s.metrics["2"].histogram(syncMetric).Bucket[1].CumulativeCount = 98
	m.Update(s)
	shows(t, m, "sync p99 >16ms")
	press(m, "3")
	shows(t, m, "m1", "2ms", "m2", ">16ms")
}

// TestKeys checks that keys select the list, filter it, and quit the program. Errors quit it as
// well.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel("a:2379", "leases", time.Second, nil)
		m.Update(at(1))
		press(m, "/host-B")
		m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
		shows(t, m, `jobs/\x1bb`, "filter: host-B")
		if strings.Contains(m.View().Content, "jobs/a") {
			t.Error("the filter leaves another lease")
		}
		m.Update(tea.KeyPressMsg{Code: tea.KeyEscape})
		m.Update([]leases.Event{
			{Kind: leases.Revoked, By: "root", Lease: leases.Info{ID: 7, Name: "jobs/c"}},
		})
		press(m, "2")
		shows(t, m, "2 ENDS", "in 12s", "expiring", "jobs/a", "0s ago", "revoked (root)", "jobs/c")
		press(m, "3")
		shows(t, m, "3 MEMBERS", "m1", "leader", "1.2.3", "m2", "voter", "7")
		press(m, "?")
		shows(t, m, "filter by words")
		press(m, "x")
		if cmd := press(m, "q"); cmd == nil || cmd() != tea.Quit() {
			t.Error("q does not end the program")
		}
		why := errors.New("no")
		if _, cmd := m.Update(why); cmd == nil || !errors.Is(m.err, why) {
			t.Errorf("it ends with %v", m.err)
		}
	})
}

// TestSelection checks that keys move the selection beyond the first page, and that it stays where it
// is when the next snapshot arrives.
func TestSelection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel("a:2379", "leases", time.Second, nil)
		s := at(1)
		for i := range 40 {
			s.leases = append(s.leases, leases.Info{
				ID: lease.ID(100 + i), Name: fmt.Sprintf("more/%d", i), TTL: time.Hour,
				Remaining: time.Hour + time.Duration(i),
			})
		}
		m.Update(s)
		press(m, strings.Repeat("j", 32))
		for range 2 {
			shows(t, m, "more/30")
			if got := m.table.SelectedRow()[0]; got != "more/30" {
				t.Errorf("%q is selected", got)
			}
			m.Update(s)
		}
		press(m, "2")
		press(m, "1")
		shows(t, m, "jobs/a")
		if got := m.table.SelectedRow()[0]; got != "jobs/a" {
			t.Errorf("%q is selected in a new list", got)
		}
	})
}

// TestPage checks that a page contains the first rows and shows how many are omitted.
func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel("a:2379", "leases", time.Second, nil)
		m.take(at(1))
		got := m.page(1)
		for _, want := range []string{"NAME", "jobs/a  host-a", "and 1 more\n"} {
			if !strings.Contains(got, want) || strings.Contains(got, "\x1b") {
				t.Errorf("%q is missing:\n%s", want, got)
			}
		}
	})
}
