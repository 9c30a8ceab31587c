package sim

import (
	"strings"
	"testing"

	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// TestAnswerOfAnotherKind checks that an answer of the wrong kind is reported as a violation and
// does not crash the client. Each case runs the client's code without a cluster and fabricates the
// answer.
func TestAnswerOfAnotherKind(t *testing.T) {
	enter := func(t *thread) {
		terms := lease.Terms{ID: 7, TTL: 1000}
		s := &session{k: t.c.keeper, terms: terms}
		n := &idempotency{open: true}
		t.enter(n, s, waitqueue.Ask{Prefix: "m/", Key: "m/7", Permits: 1}, "")
	}
	lock := func(t *thread) {
		info := &lease.Info{Terms: lease.Terms{ID: 7, TTL: 10000}, Token: 1}
		s := t.c.begin(info, t.c.clock.instant(t.c.w.now))
		t.created(s, "role/7")
	}
	txn := func(responses ...any) fsm.Result {
		return fsm.Result{Value: &fsm.TxnResult{Succeeded: true, Responses: responses}}
	}
	info := &lease.Info{Terms: lease.Terms{ID: 7}}
	tests := map[string]struct {
		program func(*thread)
		answer  Answer
		err     error
	}{
		"transaction, result of another": {
			enter, Answer{Fsm: txn(&fsm.PutResult{}), News: &waitqueue.News{}}, nil,
		},
		"transaction, lease": {
			enter, Answer{Fsm: txn(&fsm.PutResult{}, info), News: &waitqueue.News{}}, nil,
		},
		"session, put": {
			func(t *thread) { t.onceOnly(&idempotency{}, &fsm.Put{Key: "k"}, nil) },
			Answer{Fsm: fsm.Result{Value: &fsm.PutResult{}}},
			nil,
		},
		"session of numbers, nothing": {(*thread).retrier, Answer{}, nil},
		"cache's lease, delete": {
			func(t *thread) { t.openCache() },
			Answer{Fsm: fsm.Result{Value: &fsm.DeleteResult{}}},
			nil,
		},
		"compaction, lease": {
			func(t *thread) { t.command(&fsm.Compact{Revision: 1}) },
			Answer{Fsm: fsm.Result{Value: info}},
			nil,
		},
		"read of the present, compacted": {lock, Answer{}, mvcc.ErrCompacted},
		"range, nothing":                 {lock, Answer{}, nil},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(Options{Seed: 1})
			w.members = []*member{{w: w, id: 1}}
			x := w.newClient(1).spawn(c.program)
			for steps := 0; x.call == nil && steps < 100; steps++ {
				x.wake(x.token)
			}
			x.call.op.Answer = c.answer
			x.call.end(Done, c.err)
			if len(w.h.Broken) != 1 || w.h.Broken[0].ID != "S1" ||
				!strings.Contains(w.h.Broken[0].What, "answer of the wrong kind") {
				t.Errorf("violations: %v", w.h.Broken)
			}
		})
	}
}
