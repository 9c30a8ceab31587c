package holder

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"leasehold.dev/lease"
)

// TestScenarios runs the files in testdata. Each lists what a holder does and receives, with prose
// in between, and the resulting state of its Set. To update the results, run it with -rewrite and
// review the diff.
//
// Each command prints its result, the changes, and all leases with their next renewal times.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *Set
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			a := args{t, d}
			if d.Cmd == "new" {
				s = New(Config{
					Drift: a.float("drift", -1), Margin: lease.TTL(a.int("margin")),
					Gather: lease.TTL(a.int("gather")), RenewAfter: a.float("after", 0),
					First: lease.TTL(a.int("first")),
				}, lease.Instant(a.int("now")))
				return "ok\n"
			}
			run, ok := commands[d.Cmd]
			if !ok {
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return run(s, a) + report(s)
		})
	})
}

type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) int(name string) int64 { return int64(a.float(name, 0)) }

func (a args) float(name string, otherwise float64) float64 {
	a.d.MaybeScanArgs(a.t, name, &otherwise)
	return otherwise
}

func (a args) id() lease.ID           { return lease.ID(a.int("id")) }
func (a args) ttl() lease.TTL         { return lease.TTL(a.int("ttl")) }
func (a args) seq() uint64            { return uint64(a.int("batch")) }
func (a args) instant() lease.Instant { return lease.Instant(a.int("sent")) }

// commands maps the commands of a scenario to their implementations.
var commands = map[string]func(*Set, args) string{
	"add": func(s *Set, a args) string {
		return stateText(s.Add(Held{
			ID: a.id(), Token: lease.Token(a.int("token")), TTL: a.ttl(), Sent: a.instant(),
			Grace: lease.TTL(a.int("grace")), Spent: lease.TTL(a.int("spent")),
		})) + "\n"
	},
	"advance": func(s *Set, a args) string {
		s.Advance(lease.Instant(a.int("to")))
		return ""
	},
	"due":     func(s *Set, a args) string { return batchText(s.Due(int(a.int("most")))) },
	"ask":     func(s *Set, a args) string { return batchText(s.Ask(a.id())) },
	"renewed": func(s *Set, a args) string { s.Renewed(a.seq(), a.id(), a.ttl()); return "" },
	"gone":    func(s *Set, a args) string { s.Gone(a.seq(), a.id()); return "" },
	"unknown": func(s *Set, a args) string { s.Unknown(a.seq(), a.id()); return "" },
	"shorten": func(s *Set, a args) string { s.Shorten(a.id(), a.ttl()); return "" },
	"refused": func(s *Set, a args) string { s.Refused(a.id(), a.ttl()); return "" },
	"confirmed": func(s *Set, a args) string {
		s.Confirmed(a.id(), a.ttl(), a.ttl(), a.instant())
		return ""
	},
	"rest":  func(s *Set, a args) string { s.Rest(a.id()); return "" },
	"fail":  fail,
	"flood": flood,
	"drop":  func(s *Set, a args) string { s.Drop(a.id()); return "" },
}

// fail lets several successive renewals of a lease fail, and prints the wait after each.
func fail(s *Set, a args) string {
	text := "waits"
	for range a.int("times") {
		b, _ := s.Ask(a.id())
		s.Unknown(b.Seq, a.id())
		next, _ := s.Next()
		text += fmt.Sprintf(" %d", next-s.now)
		s.Advance(next)
	}
	return text + "\n"
}

// flood renews a lease several times in a row without an answer.
func flood(s *Set, a args) string {
	for range a.int("times") {
		s.Ask(a.id())
	}
	return ""
}

func stateText(st State) string {
	text := fmt.Sprintf("%v, valid until %d", st.Status, st.ValidUntil)
	switch st.Reason {
	case Lost:
		text += ", lost"
	case Expired:
		text += ", expired"
	}
	return text
}

func batchText(b Batch, ok bool) string {
	if !ok {
		return "no batch\n"
	}
	text := fmt.Sprintf("batch %d:", b.Seq)
	for _, r := range b.Leases {
		text += fmt.Sprintf(" %d", r.ID)
		if r.Token != 0 {
			text += fmt.Sprintf("/%d", r.Token)
		}
	}
	return fmt.Sprintf("%s; waited %d\n", text, b.Waited)
}

// report describes everything that a holder can learn from the Set.
func report(s *Set) string {
	var b strings.Builder
	for _, c := range s.Changes() {
		fmt.Fprintf(&b, "lease %d is now %s\n", c.ID, stateText(c.State))
	}
	fmt.Fprintf(&b, "at %d:", s.now)
	for _, id := range slices.Sorted(maps.Keys(s.leases)) {
		l := s.leases[id]
		fmt.Fprintf(&b, " lease %d %s, turn %s;", id, stateText(l.state()), turnText(l.at[turns]))
	}
	next, ok := s.Next()
	ends, endsOK := s.Ends()
	if ok != endsOK {
		return fmt.Sprintf("Next returns %v, Ends returns %v\n", ok, endsOK)
	}
	if ok {
		fmt.Fprintf(&b, " next %d, ends %d;", next, ends)
	}
	fmt.Fprintf(&b, " %d on their way\n", len(s.flights))
	return b.String()
}

func turnText(at instant) string {
	if at == 1<<63-1 {
		return "never"
	}
	return strconv.FormatInt(int64(at), 10)
}
