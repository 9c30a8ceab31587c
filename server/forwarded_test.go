package server

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/trace"
	"leasehold.dev/internal/trace/tracetest"
	"leasehold.dev/test/virtual"
)

// Goal: a command that comes through a follower shows there that it was at the leader, and what
// this member had to do itself; and the leader's part is in the same trace.
func TestTraceThroughFollower(t *testing.T) { virtual.Test(t, testTraceThroughFollower) }

func testTraceThroughFollower(t *testing.T) {
	c := &tracetest.Collector{}
	configs := clusterConfigs(t, 3)
	for i := range configs {
		configs[i] = traced(t, configs[i], c)
	}
	first, others := runLed(t, configs...) // who leads is to lead until the end
	puts := func(n int, m *running) {
		t.Helper()
		conn := dial(t, m.cfg.URLs.ListenClient[0].Path, nil)
		if err := put(t, conn, "k", "traceparent", parentNumber(n, "01")); err != nil {
			t.Fatal(err)
		}
	}
	puts(1, first)
	n := 2
	for puts(n, others[0]); !comes(t, c, leaderSpan, n); puts(n, others[0]) {
		if n++; n > 10 { // what a member tells of traces may be lost
			t.Fatal("the leader has no spans")
		}
	}
	awaitCalls(t, c, n, "etcdserverpb")
	for _, m := range append(others, first) {
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
	}
	leads, asked := fmt.Sprintf("%x", first.node.member), fmt.Sprintf("%x", others[0].node.member)
	led, through := byTrace(t, c, leads), byTrace(t, c, asked)
	const call = "etcdserverpb.KV/Put"
	checkTree(t, led[1], call, "admission", "commit", "log sync", "apply", "answer")
	checkTree(t, through[n], call, "forward", "commit", "log sync", "apply", "answer")
	inOrder(t, through[n], "forward", "commit", "apply", "answer")
	if through[1] != nil || through[n]["forward"].Attributes["leasehold.leader"] != false {
		t.Errorf("%v", through)
	}
	checkParts(t, led[n], leaderSpan, "admission", "commit", "log sync", "apply")
	inOrder(t, led[n], "admission", "commit", "apply")
	part, parent := led[n][leaderSpan], through[n][call]
	if part.Parent != parent.ID || part.Attributes["leasehold.from"] != asked {
		t.Errorf("%+v\nof %+v", part, parent)
	}
}

// comes reports whether a span with a name comes soon, of the trace with a number.
func comes(t *testing.T, c *tracetest.Collector, name string, n int) bool {
	t.Helper()
	there := func(all []tracetest.Span) bool {
		return slices.ContainsFunc(all, func(s tracetest.Span) bool {
			return s.Name == name && s.Trace == fmt.Sprintf("%032x", n)
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	all, err := c.Wait(ctx.Done(), there)
	return err == nil && there(all)
}

// entryNumber returns an entry of a traced call, which a member has forwarded under a number.
func entryNumber(index, number uint64) tracedEntry {
	return tracedEntry{
		member: 7, trace: trace.NewID(1, number), parent: trace.NewSpanID(number), state: "a=1",
		index: index, number: number,
	}
}

// Goal: a leader is told of entries in notes that are not too large, each of one leader, and of no
// more than are bounded.
func TestTraceNotes(t *testing.T) { virtual.Test(t, testTraceNotes) }

func testTraceNotes(t *testing.T) {
	n := newTraceNotes()
	for i := range uint64(maxTraceNotes + 10) {
		e := entryNumber(i, i)
		e.member = 1 + i/200
		n.add(e)
	}
	sent := map[uint64]int{}
	ctx, cancel := context.WithCancel(t.Context())
	n.run(ctx, func(_ context.Context, to uint64, data []byte) error {
		list, err := decodeTraceNote(to, data)
		if err != nil || len(list) > noteBatch {
			t.Errorf("%d entries, %v", len(list), err)
		}
		for _, e := range list {
			if want := 1 + e.index/200; want != to {
				t.Errorf("entry %d is told to %d, not %d", e.index, to, want)
			}
			if sent[to]++; e.index == maxTraceNotes-1 {
				cancel()
			}
		}
		return errors.New("it is lost")
	})
	want := map[uint64]int{1: 200, 2: 200, 3: 200, 4: 200, 5: 200, 6: maxTraceNotes - 1000}
	if !reflect.DeepEqual(sent, want) {
		t.Errorf("%v", sent)
	}
}

// Goal: the leader's spans of an entry are made when it has applied it, also if the follower was
// faster; of a command that was sent again from its first arrival on; and none if this member does
// not lead any more, or does not know when the command came.
func TestLeaderSpans(t *testing.T) { virtual.Test(t, testLeaderSpans) }

func testLeaderSpans(t *testing.T) {
	c := &tracetest.Collector{}
	tr, err := newTracer(traced(t, testConfig(shortDir(t)), c), storage.Identity{})
	if err != nil {
		t.Fatal(err)
	}
	stop := tr.start(nil)
	came := func(first uint64, commands int) {
		tr.arrived(&replica.Message{From: 7, Forward: &replica.Forward{
			First: first, Commands: make([]fsm.Command, commands),
		}})
	}
	apply := func(s replica.Status, at int64) {
		tr.log.appended.note(s.Applied, span{at, at})
		tr.log.worked = span{at, at}
		tr.follow(&s)
	}
	came(11, 3)
	first := tr.arrivals.of(7, 12)
	came(11, 3)
	if at := tr.arrivals.of(7, 12); at == 0 || at != first {
		t.Errorf("it came at %d, and then at %d", first, at)
	}
	leading := replica.Status{Leading: true, Leader: 1}
	tr.follow(&leading)
	tr.leadAll([]tracedEntry{entryNumber(5, 11), entryNumber(5, 15)})
	tr.waited([]replica.ForwardedWait{{
		Member: 7, Number: 11, CacheWait: replica.CacheWait{For: 8, Drops: 2, Last: 0xab},
	}})
	leading.Index, leading.Applied = 5, 5
	apply(leading, first+10)
	tr.leadAll([]tracedEntry{entryNumber(5, 13)})
	tr.leadAll([]tracedEntry{entryNumber(6, 13)})
	apply(replica.Status{Leader: 2, Index: 6, Applied: 6}, first+20)
	if len(tr.log.forwarded) != 0 {
		t.Errorf("%d entries wait for a member that does not lead", len(tr.log.forwarded))
	}
	awaitCalls(t, c, 2, leaderSpan)
	stop()
	all := map[string][]string{}
	for _, s := range collected(t, c) {
		all[s.Trace] = append(all[s.Trace], s.Name)
		if s.Name == "cache wait" && (s.Attributes["leasehold.cache_drops"] != int64(2) ||
			s.Attributes["leasehold.last_lease"] != "00000000000000ab") {
			t.Errorf("%+v", s)
		}
	}
	want := map[string][]string{
		trace.NewID(1, 11).String(): {"admission", "cache wait", "commit", "apply", leaderSpan},
		trace.NewID(1, 13).String(): {"admission", "commit", "apply", leaderSpan},
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("%v", all)
	}
}
