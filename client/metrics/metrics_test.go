package metrics

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// everything is a snapshot in which all numbers are different.
var everything = Snapshot{
	Connected: true, Connects: 2, Disconnects: 3, Moves: 4, FailedConnects: 5,
	Leases: 6, InJeopardy: 7, Renewals: 8, RepeatedRenewals: 9, Jeopardies: 10, Expired: 11, Lost: 12,
	Valid: 1500 * time.Millisecond,
	Calls: map[Outcome]uint64{
		OK: 21, Refused: 22, Unavailable: 23, Unknown: 24, TimedOut: 25, Canceled: 26,
	},
}

// TestAll checks that every field occurs once, under a valid Prometheus name.
func TestAll(t *testing.T) {
	got := ""
	for n := range everything.All() {
		if strings.HasSuffix(n.Name, "_total") != n.Counter || n.Help == "" {
			t.Errorf("%+v", n)
		}
		got += strings.TrimSpace(fmt.Sprint(n.Name, " ", n.Outcome)) + fmt.Sprintf(" %v\n", n.Value)
	}
	const want = `leasehold_client_connected 1
leasehold_client_connects_total 2
leasehold_client_disconnects_total 3
leasehold_client_moves_total 4
leasehold_client_failed_connects_total 5
leasehold_client_leases 6
leasehold_client_leases_in_jeopardy 7
leasehold_client_renewals_total 8
leasehold_client_repeated_renewals_total 9
leasehold_client_jeopardies_total 10
leasehold_client_expired_leases_total 11
leasehold_client_lost_leases_total 12
leasehold_client_valid_seconds 1.5
leasehold_client_calls_total ok 21
leasehold_client_calls_total refused 22
leasehold_client_calls_total unavailable 23
leasehold_client_calls_total unknown 24
leasehold_client_calls_total timed_out 25
leasehold_client_calls_total canceled 26
`
	if got != want {
		t.Errorf("there are\n%s", got)
	}
}

// TestNoLease checks that a client without leases reports no validity, and that every outcome has a
// number, even if it never occurred.
func TestNoLease(t *testing.T) {
	calls := 0
	for n := range (Snapshot{}).All() {
		if n.Name == prefix+"valid_seconds" || n.Value != 0 {
			t.Errorf("%+v", n)
		}
		if n.Outcome != "" {
			calls++
		}
	}
	if calls != len(outcomes) {
		t.Errorf("%d outcomes", calls)
	}
}

// TestDocument checks that docs/client.md lists every metric.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/client.md")
	if err != nil {
		t.Fatal(err)
	}
	for n := range everything.All() {
		if !strings.Contains(string(text), "`"+strings.TrimPrefix(n.Name, prefix)) {
			t.Errorf("docs/client.md does not name %s", n.Name)
		}
	}
}
