package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
)

// ledger simulates members that lose responses, break streams, execute requests late, and forget
// sessions. Like the state machine, it executes each number once.
type ledger struct {
	*fake
	rng      *rand.Rand // this and the following fields are guarded by the fake's mu
	sessions map[uint64]*account
	applied  map[string]int   // how often each value has been put
	revision map[string]int64 // revision of the last put of each value
	now      int64
	open     map[*fakeStream]map[uint64]bool // unanswered requests
	leases   *lessor                         // nil if the test makes no requests about leases
}

func newLedger(f *fake, seed uint64) *ledger {
	return &ledger{
		fake: f, rng: rand.New(rand.NewPCG(seed, 1)), sessions: make(map[uint64]*account),
		applied: make(map[string]int), revision: make(map[string]int64),
		open: make(map[*fakeStream]map[uint64]bool),
	}
}

// account is the state of a session.
type account struct {
	settled uint64
	answers map[uint64]*pb.Response
}

// apply executes a request and returns the response.
func (l *ledger) apply(m *pb.ClientMessage, r *pb.Request) *pb.Response {
	if r.Number == 0 {
		return l.do(r)
	}
	s := l.sessions[m.Session.Id]
	if s == nil {
		return refuse(r, pb.Reason_REASON_SESSION_NOT_FOUND)[0]
	}
	s.settled = max(s.settled, m.AcknowledgedBelow)
	done, ok := s.answers[r.Number]
	if r.Number < s.settled {
		return refuse(r, pb.Reason_REASON_SESSION_NOT_FOUND)[0]
	}
	switch {
	case !ok:
		done = l.do(r)
		s.answers[r.Number] = done
	case l.leases != nil:
		done = l.leases.again(done)
	}
	return &pb.Response{Id: r.Id, Body: done.Body}
}

func (l *ledger) do(r *pb.Request) *pb.Response {
	if s := r.GetSession(); s != nil {
		out := l.obey(nil, r)[0]
		l.sessions[out.GetSession().Session.Id] = &account{answers: make(map[uint64]*pb.Response)}
		return out
	}
	if p := r.GetPut(); p != nil {
		l.now++
		l.applied[string(p.Value)]++
		l.revision[string(p.Value)] = l.now
		return &pb.Response{Id: r.Id, Body: &pb.Response_Put{Put: &pb.PutResponse{
			Header: &pb.Header{Revision: l.now},
		}}}
	}
	if l.leases != nil {
		if out := l.leases.do(r); out != nil {
			return out
		}
	}
	return l.obey(nil, r)[0]
}

// later calls f after a random delay, unless the test has ended.
func (l *ledger) later(f func()) {
	time.AfterFunc(time.Duration(l.rng.IntN(3000))*time.Millisecond, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		f()
	})
}

// reply sends a response unless the request has already been answered.
func (l *ledger) reply(s *fakeStream, r *pb.Response) {
	if l.open[s][r.Id] && !s.isCut() {
		delete(l.open[s], r.Id)
		s.say(r)
	}
}

func (l *ledger) breakOff(s *fakeStream) {
	if !s.isCut() {
		close(s.cut)
	}
}

// take handles a message.
func (l *ledger) take(s *fakeStream, m *pb.ClientMessage) {
	if l.open[s] == nil {
		l.open[s] = make(map[uint64]bool)
	}
	for _, r := range m.Requests {
		if c := r.GetCancel(); c != 0 {
			l.reply(s, refuse(&pb.Request{Id: c}, pb.Reason_REASON_UNKNOWN_OUTCOME)[0])
			continue
		}
		l.open[s][r.Id] = true
		l.chance(s, m, r)
	}
}

func (l *ledger) chance(s *fakeStream, m *pb.ClientMessage, r *pb.Request) {
	switch n := l.rng.IntN(100); {
	case n < 60:
		l.reply(s, l.apply(m, r))
	case n < 70:
		out := l.apply(m, r)
		l.later(func() { l.reply(s, out) })
	case n < 80: // even if the stream has broken and no caller is waiting anymore
		l.later(func() { l.reply(s, l.apply(m, r)) })
	case n < 83:
		l.apply(m, r)
		l.breakOff(s)
	case n < 85:
		l.breakOff(s)
	case n < 90:
		l.reply(s, refuse(r, pb.Reason_REASON_UNAVAILABLE)[0])
	case n < 93:
		l.later(func() { l.apply(m, r) })
		l.reply(s, refuse(r, pb.Reason_REASON_UNKNOWN_OUTCOME)[0])
	case n < 96:
		l.apply(m, r)
		l.reply(s, refuse(r, pb.Reason_REASON_UNKNOWN_OUTCOME)[0])
	case n < 97:
		clear(l.sessions)
		l.reply(s, l.apply(m, r))
	case n < 99:
		l.leader, l.reportsLeader = string(rune('a'+l.rng.IntN(3))), true
		for _, other := range l.opened {
			if !other.isCut() && other.ctx.Err() == nil {
				other.out <- l.leadership(other.name)
			}
		}
	}
}

// TestOutcomes checks that a put is reported as done, with its revision, only if it took effect,
// and as not done only if it never will. Members lose and delay responses, break streams and forget
// sessions. Callers give up at random times.
func TestOutcomes(t *testing.T) {
	for seed := range uint64(6) {
		outcomes(t, seed)
	}
}

func outcomes(t *testing.T, seed uint64) {
	inBubble(t, 3, Config{}, func(t *testing.T, c *Client, f *fake) {
		l := newLedger(f, seed)
		f.set(func() { f.take = l.take })
		type result struct {
			store.PutResult
			err error
		}
		results := make([][]result, 16)
		var all sync.WaitGroup
		for w := range results {
			rng := rand.New(rand.NewPCG(seed, uint64(w)+2))
			all.Go(func() {
				for i := range 40 {
					ctx, cancel := context.WithTimeout(t.Context(), patience(rng))
					r, err := c.Put(ctx, store.Put{Key: "k", Value: fmt.Appendf(nil, "%d/%d", w, i)})
					cancel()
					results[w] = append(results[w], result{r, err})
				}
			})
		}
		all.Wait()
		pass(time.Minute)
		f.mu.Lock()
		defer f.mu.Unlock()
		sure := 0
		for w, list := range results {
			for i, r := range list {
				v := fmt.Sprintf("%d/%d", w, i)
				n := l.applied[v]
				switch {
				case r.err == nil && (n != 1 || r.Revision != l.revision[v]):
					t.Errorf("seed %d: %s done %d times, by %d, and reported by %d", seed, v, n,
						l.revision[v], r.Revision)
				case r.err != nil && !errors.Is(r.err, ErrUnknownOutcome) && n > 0, n > 1:
					t.Errorf("seed %d: %s done %d times, and reported %v", seed, v, n, r.err)
				case r.err == nil:
					sure++
				}
			}
		}
		if sure < 300 {
			t.Errorf("seed %d: of %d puts only is the outcome known", seed, sure)
		}
	})
}

// patience returns how long a caller waits.
func patience(rng *rand.Rand) time.Duration {
	switch rng.IntN(4) {
	case 0:
		return time.Duration(rng.IntN(3)) * time.Millisecond
	case 1:
		return time.Duration(rng.IntN(3000)) * time.Millisecond
	default:
		return time.Hour
	}
}
