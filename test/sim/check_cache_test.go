package sim

import (
	"testing"
	"testing/cryptotest"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
)

// TestCachesBeyondBound checks that C1 fails if clocks exceed the bound, that the checker detects
// the failure, and that it is not counted as a violation for such clocks.
func TestCachesBeyondBound(t *testing.T) {
	broken := 0
	for seed := uint64(1); seed <= 12 && broken == 0; seed++ {
		t.Run("", func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, seed)
			p := Run(Options{Seed: seed, Duration: Millisecond}).Profile
			p.Drift, p.RealDrift, p.Margin, p.Calm = 1e-3, 0.4, 0, 5*Second
			p.Caches, p.Faults, p.Think = 4, 2*Second, 200*Millisecond
			for i := range p.Weights { // a cache must be cut off during a write
				p.Weights[i] = 0
				if faults[i].kind == faultClientCut {
					p.Weights[i] = 1
				}
			}
			r := Run(Options{Seed: seed, Duration: 40 * Second, Profile: &p})
			// check judges only reads; clocks beyond the bound break other promises too
			check := func() string {
				f := newFacts(r.History, p.Limits())
				f.replayLog()
				f.matchOps()
				f.checkOps()
				return firstOf(f.report, "C1")
			}
			if id := check(); id != "" {
				t.Errorf("%s counts as a violation although the clocks exceed the bound", id)
			}
			r.InBound = true
			if check() != "" {
				broken++
			}
		})
	}
	if broken == 0 {
		t.Error("clocks 40 percent apart broke nothing")
	}
}

// TestCheckCached checks C1 for a single key. A cached read is correct if its value was current at
// some time during the read, regardless of the revision it reports. It is wrong if the key changed
// before the read.
func TestCheckCached(t *testing.T) {
	put := func(value string) *fsm.Put { return &fsm.Put{Key: "r", Value: []byte(value)} }
	for _, c := range []struct {
		name       string
		start, end Time
		value      string
		revision   int64
		want       string
	}{
		{"before any write", 5, 6, "", 0, ""},
		{"current value", 15, 16, "a", 2, ""},
		{"value at the start", 15, 25, "a", 2, ""},
		{"value written meanwhile", 15, 25, "b", 3, ""},
		{"overwritten value", 25, 26, "a", 2, "C1"},
		{"value not written yet", 15, 16, "b", 3, "C1"},
		{"absence of a key that exists", 15, 16, "", 0, "C1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &History{InBound: true, End: 100}
			for i, v := range []string{"a", "b"} {
				at, revision := Time(10+10*i), int64(2+i)
				kv := &mvcc.KeyValue{
					Key: "r", Value: []byte(v), CreateRevision: 2, ModRevision: revision,
					Version: revision - 1,
				}
				h.Log = append(h.Log, &Entry{
					Index: uint64(firstIndex + i), Term: 2, At: at, Revision: revision,
					Commands: []fsm.Command{put(v)},
					Results:  []fsm.Result{{Revision: revision, Value: &fsm.PutResult{}}},
					Changes: []fsm.Change{{
						Revision: revision, Events: []mvcc.Event{{KV: kv}},
					}},
				})
				h.Ops = append(h.Ops, &Op{
					ID: i, Kind: opCommand, Request: Request{Command: put(v)}, Outcome: Done,
					Start: at - 1, End: at + 1,
					Answer: Answer{Fsm: fsm.Result{Revision: revision, Value: &fsm.PutResult{}}},
				})
			}
			read := &Op{
				ID: 2, Kind: opCached, Start: c.start, End: c.end, Outcome: Done,
				Request: Request{Range: &fsm.Range{Key: "r"}},
				Answer:  Answer{Range: &mvcc.RangeResult{Revision: c.revision}},
			}
			if c.value != "" {
				read.Answer.Range.KVs = []*mvcc.KeyValue{{
					Key: "r", Value: []byte(c.value), CreateRevision: 2, ModRevision: c.revision,
					Version: c.revision - 1,
				}}
			}
			h.Ops = append(h.Ops, read)
			report := Check(h, Limits{Lateness: Second, Search: 1000})
			if got := firstOf(report, "C1"); got != c.want {
				t.Errorf("%q, want %q: %v", got, c.want, report.Violations)
			}
			if c.want == "" && len(report.Violations) > 0 {
				t.Errorf("%v", report.Violations)
			}
		})
	}
}
