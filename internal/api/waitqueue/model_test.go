package waitqueue

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/ticket"
	"leasehold.dev/lease"
	"leasehold.dev/test/tier"
)

// modelWaiter is a waiter and its state according to the model.
type modelWaiter struct {
	recorder
	ask     Ask
	created int64
	entry   *Entry
	state   State
	// detached reports whether the key had no lease at any time since the last check.
	detached bool
}

// model is a member and its waiters.
type model struct {
	*member
	t       *testing.T
	random  *rand.Rand
	waiting map[*modelWaiter]bool
	left    []*modelWaiter
}

// asks lists waits with different permits and ignored values.
var asks = []Ask{
	{Permits: 1},
	{Permits: 2},
	{Permits: 5},
	{Permits: 1, Skips: true, IgnoredValue: "r"},
	{Permits: 2, Skips: true, IgnoredValue: "r"},
	{Permits: 1, Skips: true, IgnoredValue: ""},
}

// expect computes the expected state of a ticket from the whole queue.
func (m *model) expect(w *modelWaiter) State {
	v := m.view.Load().KV
	own := v.Get(w.ask.Key)
	if own == nil || own.CreateRevision != w.created || own.Lease == 0 {
		return Gone
	}
	before := int64(0)
	for kv := range v.Ascend("l/", "l0", 0) {
		at := ticket.Ticket{Revision: kv.CreateRevision, Key: kv.Key}
		if ticket.Is("l/", kv.Key, kv.Lease) && (!w.ask.Skips || string(kv.Value) != w.ask.IgnoredValue) &&
			at.Before(ticket.Ticket{Revision: w.created, Key: w.ask.Key}) {
			before++
		}
	}
	if before < w.ask.Permits {
		return Ready
	}
	return Waiting
}

// step performs a random action.
func (m *model) step() {
	key := m.key()
	id := lease.ID(m.random.IntN(9) + 1)
	switch m.random.IntN(12) {
	case 0, 1, 2, 3:
		m.put(m.t, key, id, m.value())
	case 4:
		m.put(m.t, key, 0, m.value())
		for w := range m.waiting {
			w.detached = w.detached || w.ask.Key == key
		}
	case 5, 6:
		m.remove(m.t, key)
	case 7:
		m.apply(m.t, &fsm.Revoke{ID: id})
		m.grant(m.t, id)
	case 8:
		m.apply(m.t, &fsm.Txn{Then: []fsm.Op{
			{Delete: &fsm.DeleteRange{Key: "l/2", End: "l/4"}},
			{Put: &fsm.Put{Key: "l/7.1", Lease: 7}},
			{Put: &fsm.Put{Key: "l/7.0", Lease: 7}},
		}})
	case 9:
		for w := range m.waiting {
			m.leave(w)
			break
		}
	default:
		m.enter(key)
	}
}

func (m *model) key() string {
	return fmt.Sprintf("l/%x", m.random.IntN(9)+1) + []string{"", ".0", ".1"}[m.random.IntN(3)]
}

func (m *model) value() string { return []string{"", "r", "w"}[m.random.IntN(3)] }

func (m *model) enter(key string) {
	v := m.view.Load().KV
	own := v.Get(key)
	w := &modelWaiter{ask: asks[m.random.IntN(len(asks))]}
	w.ask.Key, w.ask.Prefix = key, "l/"
	e, n := m.queues.Wait(w.ask, v.Revision(), w)
	if own == nil || own.Lease == 0 {
		if n.State != None {
			m.t.Fatalf("%s does not exist: %+v", key, n)
		}
		return
	}
	w.created, w.entry, w.state = own.CreateRevision, e, n.State
	if want := m.expect(w); n.State != want || n.Created != w.created {
		m.t.Fatalf("%s enters %+v: %+v, want state %d", key, w.ask, n, want)
	}
	m.waiting[w] = true
}

// check distributes all events and compares each waiter's notifications with the model.
func (m *model) check() {
	m.hub.Distribute()
	for w := range m.waiting {
		for _, n := range w.take() {
			if n.State <= w.state {
				m.t.Fatalf("%s: state %d after %d", w.ask.Key, n.State, w.state)
			}
			w.state = n.State
		}
		// A turn is never revoked, no matter which keys are inserted before it.
		want := m.expect(w)
		right := w.state == want || w.state == Ready && want != Gone || w.state == Gone && w.detached
		if w.detached = false; !right {
			m.t.Fatalf("%s, waiting for %+v: state %d, want %d", w.ask.Key, w.ask, w.state, want)
		}
		if w.state == Gone {
			m.leave(w)
		}
	}
	for _, w := range m.left {
		if list := w.take(); len(list) > 0 {
			m.t.Fatalf("%s has left, but was notified: %+v", w.ask.Key, list)
		}
	}
}

func (m *model) leave(w *modelWaiter) {
	w.entry.Leave()
	delete(m.waiting, w)
	w.take() // notifications before the leave
	m.left = append(m.left, w)
}

// TestModel compares random enters, leaves, revocations, detachments, value changes and gaps with a
// model that scans the whole queue.
func TestModel(t *testing.T) {
	for seed := range tier.Seeds(30, 300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := &model{
				member: newMember(6), t: t, random: rand.New(rand.NewPCG(seed, 1)),
				waiting: make(map[*modelWaiter]bool),
			}
			m.grant(t, 1, 2, 3, 4, 5, 6, 7, 8, 9)
			for range 400 {
				for range 1 + m.random.IntN(4) {
					m.step()
				}
				if m.random.IntN(40) == 0 {
					m.hub.Restore(m.view.Load().KV.Revision())
				}
				m.check()
			}
			for w := range m.waiting {
				w.entry.Leave()
			}
			if s := m.queues.Stats(); s != (Stats{}) {
				t.Errorf("left behind: %+v", s)
			}
		})
	}
}

// racer is a client that repeatedly acquires a lock, for TestRace.
type racer struct{ turn chan News }

func (h racer) Notify(n News) { h.turn <- n }

// TestRace waits, leaves, applies and distributes concurrently. Each waiter gets its turn, and no
// two have a turn at the same time.
func TestRace(t *testing.T) {
	m := newMember(100)
	const racers, rounds = 8, 200
	for id := range lease.ID(racers) {
		m.grant(t, id+1)
	}
	var applying, holding sync.Mutex
	stop := make(chan struct{})
	var all, distributing sync.WaitGroup
	distributing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				m.hub.Distribute()
			}
		}
	})
	for id := lease.ID(1); id <= racers; id++ {
		all.Go(func() {
			for range rounds {
				applying.Lock()
				at := m.put(t, keyOf(id), id, "")
				applying.Unlock()
				h := racer{make(chan News, 2)}
				e, n := m.queues.Wait(Ask{Key: keyOf(id), Prefix: "l/", Permits: 1}, at, h)
				if n.State == Waiting {
					n = <-h.turn
				}
				if n.State != Ready || !holding.TryLock() {
					t.Errorf("two waiters have the turn, or one is gone: %+v", n)
					return
				}
				applying.Lock()
				holding.Unlock()
				m.remove(t, keyOf(id))
				applying.Unlock()
				e.Leave()
			}
		})
	}
	all.Wait()
	close(stop)
	distributing.Wait()
}
