package sim

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// few and many are the numbers of objects that exist during a measurement.
const few, many = 1_000, 100_000

// flatRow is an operation that is measured with different numbers of existing objects.
type flatRow struct {
	name string
	// most, if not 0, replaces many as the number of objects, for types that cannot have that many.
	most int
	// make creates the objects and returns the operation. The operation leaves the objects
	// unchanged and returns the number of units over which its cost is spread.
	make func(b *testing.B, n int) func(i int) (units int)
	// once is set if the operation consumes the objects. all is set if it processes all of them.
	once, all bool
}

// BenchmarkFlat measures operations with 1,000 and with 100,000 existing objects of a type that
// clients can create. It reports the minimum of several rounds, in nanoseconds per unit, with the
// garbage collector off. The cost of core operations must not grow by more than cache misses can
// explain. Run it with -benchtime 1x.
func BenchmarkFlat(b *testing.B) {
	for _, rows := range [][]flatRow{flatLeases, flatKeys, flatCaches, flatRest} {
		for _, r := range rows {
			b.Run(r.name, func(b *testing.B) {
				large := many
				if r.most > 0 {
					large = r.most
				}
				at := [2]float64{r.cost(b, few), r.cost(b, large)}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(at[0], "ns-at-1000")
				b.ReportMetric(at[1], fmt.Sprintf("ns-at-%d", large))
				b.ReportMetric(at[1]/at[0], "times")
			})
		}
	}
}

// cost returns the minimum cost per unit over several rounds, in nanoseconds.
func (r *flatRow) cost(b *testing.B, n int) float64 {
	const rounds, length = 7, 5 * time.Millisecond
	var op func(int) int
	least := 0.0
	for round := range rounds {
		if round == 0 || r.once {
			op = r.make(b, n)
		}
		runtime.GC()
		percent := debug.SetGCPercent(-1)
		units, i := 0, round<<20
		begin := time.Now()
		for done := false; !done; done = r.once || time.Since(begin) > length {
			for range r.between() {
				units += op(i)
				i++
			}
		}
		cost := float64(time.Since(begin).Nanoseconds()) / float64(units)
		debug.SetGCPercent(percent)
		if least == 0 || cost < least {
			least = cost
		}
	}
	return least
}

// between returns the number of operations between two clock readings. A clock reading takes about
// as long as one operation.
func (r *flatRow) between() int {
	if r.once || r.all {
		return 1
	}
	return 32
}

// flatMachine is the state machine of a primary.
type flatMachine struct {
	*fsm.Machine
	b   *testing.B
	now lease.Instant
}

func newFlatMachine(b *testing.B) *flatMachine {
	m := &flatMachine{fsm.New(fsm.Config{Lease: lease.Config{AtOnce: 1 << 30}}), b, 1}
	m.Begin(1, 1)
	m.Lessor().Advance(1)
	m.Lessor().Promote(1)
	return m
}

// do applies a command in an entry of its own, as the core does.
func (m *flatMachine) do(c fsm.Command) any {
	for m.Ahead(c) {
		m.View() // one step
	}
	m.Begin(m.Index()+1, 1)
	r := m.Apply(c)
	if r.Err != nil {
		m.b.Fatal(r.Err)
	}
	m.View()
	m.TakeChanges()
	m.ReuseChanges()
	m.TakeHolds()
	return r.Value
}

// load applies a command but skips the work that follows each entry.
func (m *flatMachine) load(c fsm.Command) any {
	r := m.Apply(c)
	if r.Err != nil {
		m.b.Fatal(r.Err)
	}
	m.TakeChanges()
	m.TakeHolds()
	return r.Value
}

func (m *flatMachine) advance(by lease.TTL) {
	m.now += lease.Instant(by)
	m.Lessor().Advance(m.now)
}

// scattered returns IDs in an order unrelated to the order of the leases in memory.
func scattered(n int) []lease.ID {
	ids := make([]lease.ID, n)
	for i, k := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
		ids[i] = lease.ID(k + 1)
	}
	return ids
}

// newLeases returns a machine with n leases of the given TTL. If named is set, they have names.
func newLeases(b *testing.B, n int, ttl lease.TTL, named bool) *flatMachine {
	m := newFlatMachine(b)
	for i := range n {
		t := lease.Terms{ID: lease.ID(i + 1), TTL: ttl}
		if named {
			t.Name = fmt.Sprintf("name/%08d", i)
		}
		m.load(&fsm.Grant{Terms: t})
	}
	return m
}

const hour lease.TTL = 3600_000

// flatLeases lists operations measured with many leases. The first is a map lookup, which shows the
// effect of the CPU caches alone.
var flatLeases = []flatRow{
	{name: "a-map/look-up", make: func(b *testing.B, n int) func(int) int {
		ids, m := scattered(n), make(map[lease.ID]*lease.Info)
		for _, id := range ids {
			m[id] = &lease.Info{Token: lease.Token(id)}
		}
		return func(i int) int {
			if id := ids[i%n]; m[id].Token != lease.Token(id) {
				b.Fatal("another one")
			}
			return 1
		}
	}},
	{name: "leases/grant-and-revoke", make: func(b *testing.B, n int) func(int) int {
		m := newLeases(b, n, hour, false)
		return func(i int) int {
			m.do(&fsm.Grant{Terms: lease.Terms{ID: lease.ID(n + i + 1), TTL: hour}})
			m.do(&fsm.Revoke{ID: lease.ID(n + i + 1)})
			return 1
		}
	}},
	{name: "leases/grant-and-revoke-a-name", make: func(b *testing.B, n int) func(int) int {
		m := newLeases(b, n, hour, true)
		return func(i int) int {
			t := lease.Terms{ID: lease.ID(n + i + 1), TTL: hour, Name: fmt.Sprintf("name/%08d+", i*7919%n)}
			m.do(&fsm.Grant{Terms: t})
			m.do(&fsm.Revoke{Name: t.Name})
			return 1
		}
	}},
	{name: "leases/renew", make: func(b *testing.B, n int) func(int) int {
		m, ids := newLeases(b, n, hour, false), scattered(n)
		return func(i int) int {
			if _, err := m.Lessor().Renew(ids[i%n], 0); err != nil {
				b.Fatal(err)
			}
			return 1
		}
	}},
	{name: "leases/one-expires", make: func(b *testing.B, n int) func(int) int {
		m := newLeases(b, n, hour, false)
		return func(i int) int {
			m.do(&fsm.Grant{Terms: lease.Terms{ID: lease.ID(n + i + 1), TTL: 1}})
			m.advance(2)
			m.do(&fsm.Expire{Term: 1, Leases: m.Lessor().Due(512)})
			return 1
		}
	}},
	{name: "leases/all-expire", once: true, make: func(b *testing.B, n int) func(int) int {
		m := newLeases(b, n, 1000, false)
		return func(int) int {
			m.advance(1001)
			for m.Lessor().Len() > 0 {
				m.do(&fsm.Expire{Term: 1, Leases: m.Lessor().Due(512)})
			}
			return n
		}
	}},
	{name: "leases/all-fall-due", once: true, make: func(b *testing.B, n int) func(int) int {
		m := newLeases(b, n, 1000, false)
		return func(int) int {
			m.advance(1001)
			return n
		}
	}},
	{name: "leases/all-are-checkpointed", once: true, make: func(b *testing.B, n int) func(int) int {
		m := newLeases(b, n, hour, false)
		return func(int) int {
			m.advance(hour / 2)
			for list := m.Lessor().Silent(512); len(list) > 0; list = m.Lessor().Silent(512) {
				m.do(&fsm.Checkpoint{Term: 1, Leases: list})
			}
			return n
		}
	}},
	{name: "leases/promote", all: true, make: func(b *testing.B, n int) func(int) int {
		m := newLeases(b, n, hour, false)
		return func(int) int {
			m.Lessor().Promote(m.now)
			return n
		}
	}},
	{name: "lease-events/happen-and-are-read", make: func(b *testing.B, n int) func(int) int {
		m := &flatMachine{fsm.New(fsm.Config{LeaseEvents: n}), b, 1}
		m.load(&fsm.Grant{Terms: lease.Terms{ID: 1, TTL: hour}})
		for i := range n {
			m.load(&fsm.Grant{Terms: lease.Terms{ID: lease.ID(i + 2), TTL: hour}})
			m.load(&fsm.Revoke{ID: lease.ID(i + 2)})
		}
		return func(i int) int {
			before := m.View().LeaseEvents
			m.do(&fsm.Grant{Terms: lease.Terms{ID: lease.ID(n + i + 2), TTL: hour}})
			m.do(&fsm.Revoke{ID: lease.ID(n + i + 2)})
			if list, err := m.View().LeaseEvents.After(before.Last()); len(list) == 0 || err != nil {
				b.Fatal(err)
			}
			return 1
		}
	}},
}

// newAttached returns a machine with two leases, one with n keys and one without keys.
func newAttached(b *testing.B, n int, format string) *flatMachine {
	m := newLeases(b, 2, hour, false)
	for i := range n {
		m.load(&fsm.Put{Key: fmt.Sprintf(format, i), Lease: 1})
	}
	return m
}

// flatKeys lists operations measured with many keys on a lease or many tickets in a wait queue.
var flatKeys = []flatRow{
	{name: "keys-of-a-lease/attach-and-delete", make: func(b *testing.B, n int) func(int) int {
		m := newAttached(b, n, "k/%08d")
		return func(i int) int {
			key := fmt.Sprintf("k/%08d+", i*7919%n)
			m.do(&fsm.Put{Key: key, Lease: 1})
			m.do(&fsm.DeleteRange{Key: key})
			return 1
		}
	}},
	{name: "keys-of-a-lease/move-and-back", make: func(b *testing.B, n int) func(int) int {
		m := newAttached(b, n, "k/%08d")
		return func(i int) int {
			key := fmt.Sprintf("k/%08d", i*7919%n)
			m.do(&fsm.Put{Key: key, Lease: 2})
			m.do(&fsm.Put{Key: key, Lease: 1})
			return 1
		}
	}},
	{name: "keys-of-a-lease/revoke", once: true, make: func(b *testing.B, n int) func(int) int {
		m := newAttached(b, n, "k/%08d")
		return func(int) int {
			m.do(&fsm.Revoke{ID: 1})
			return n
		}
	}},
	{name: "keys-of-a-range/delete", once: true, make: func(b *testing.B, n int) func(int) int {
		m := newAttached(b, n, "k/%08d")
		return func(int) int {
			m.do(&fsm.DeleteRange{Key: "k/", End: "k0"})
			return n
		}
	}},
	{name: "tickets-of-a-queue/enter-and-leave", make: func(b *testing.B, n int) func(int) int {
		m := newAttached(b, n, "line/%08x")
		return func(i int) int {
			key := fmt.Sprintf("line/%08x", n+i)
			m.do(&fsm.Txn{
				Compare: []fsm.Compare{{Key: "line/", End: "line0", Target: fsm.TargetCreate}},
				Else:    []fsm.Op{{Put: &fsm.Put{Key: key, Lease: 2}}, {Draw: true}},
			})
			m.do(&fsm.DeleteRange{Key: key})
			return 1
		}
	}},
	{name: "tickets-of-a-queue/etcd-lock", all: true, make: func(b *testing.B, n int) func(int) int {
		m := newAttached(b, n, "line/%08x")
		return func(int) int {
			first := mvcc.RangeOptions{SortBy: mvcc.ByCreate, Limit: 1}
			m.do(&fsm.Txn{Then: []fsm.Op{
				{Put: &fsm.Put{Key: "line/x", Lease: 2}},
				{Range: &fsm.Range{Key: "line/", End: "line0", Options: first}},
			}})
			m.do(&fsm.DeleteRange{Key: "line/x"})
			return 1
		}
	}},
}

// flatEvent is an event published through a hub.
type flatEvent struct {
	key string
	rev int64
}

func (e *flatEvent) Key() string     { return e.key }
func (e *flatEvent) Revision() int64 { return e.rev }
func (e *flatEvent) IsDelete() bool  { return false }
func (e *flatEvent) Size() int       { return 100 }

// flatHistory is a store that consists only of a revision.
type flatHistory struct{ rev int64 }

func (h *flatHistory) Events(string, string, int64, int) ([]*flatEvent, int64, error) {
	return nil, h.rev + 1, nil
}
func (h *flatHistory) Revision() int64  { return h.rev }
func (h *flatHistory) Compacted() int64 { return 0 }

// newWatched creates n watchers. The returned function publishes a put and reads the events for the
// watchers of one stream. All watchers except one are on other streams.
func newWatched(b *testing.B, n int, ask func(i int) watch.Request) func(i int, key string) {
	h := &flatHistory{rev: 1}
	hub := watch.New(func() watch.History[*flatEvent] { return h }, watch.Options{})
	streams := make([]*watch.Stream[*flatEvent], n)
	for i := range n {
		streams[i] = hub.NewStream()
		if _, err := streams[i].Watch(ask(i)); err != nil {
			b.Fatal(err)
		}
		if bt, ok := streams[i].Poll(); !ok || bt.Kind == watch.Changed {
			b.Fatal("not watching")
		}
	}
	return func(i int, key string) {
		h.rev++
		hub.Publish(h.rev, []*flatEvent{{key, h.rev}})
		hub.Distribute()
		for bt, ok := streams[i].Poll(); ; bt, ok = streams[i].Poll() {
			if ok && len(bt.Events) == 1 {
				return
			}
			if !ok {
				b.Fatal("nobody was told of ", key)
			}
		}
	}
}

// flatRest lists operations measured with many watches, many sessions, or a member's backlog.
var flatRest = []flatRow{
	{name: "watches/of-other-keys", make: func(b *testing.B, n int) func(int) int {
		key := func(i int) string { return fmt.Sprintf("k/%08d", i) }
		put := newWatched(b, n, func(i int) watch.Request { return watch.Request{Key: key(i)} })
		return func(i int) int { put(i%n, key(i%n)); return 1 }
	}},
	{name: "watches/of-other-ranges", make: func(b *testing.B, n int) func(int) int {
		key := func(i int) string { return fmt.Sprintf("k/%08d/", i) }
		put := newWatched(b, n, func(i int) watch.Request {
			return watch.Request{Key: key(i), End: fmt.Sprintf("k/%08d0", i)}
		})
		return func(i int) int { put(i%n, key(i%n)+"x"); return 1 }
	}},
	{name: "sessions/open", most: 16_384, make: func(b *testing.B, n int) func(int) int {
		m := newFlatMachine(b)
		for i := range n {
			m.load(&fsm.OpenSession{Nonce: uint64(i)})
		}
		return func(i int) int { m.do(&fsm.OpenSession{Nonce: uint64(i)}); return 1 }
	}},
	{name: "sessions/put-once", most: 16_384, make: func(b *testing.B, n int) func(int) int {
		m := newFlatMachine(b)
		sessions := make([]fsm.Session, n)
		for i := range sessions {
			sessions[i] = m.load(&fsm.OpenSession{Nonce: uint64(i)}).(fsm.Session)
		}
		return func(i int) int {
			m.do(&fsm.Once{
				Session: sessions[i*7919%n], Number: uint64(i + 1), Settled: uint64(i),
				Command: &fsm.Put{Key: "k"},
			})
			return 1
		}
	}},
	{name: "answers-of-a-session/put-once", most: 4096, make: func(b *testing.B, n int) func(int) int {
		m := newFlatMachine(b)
		s := m.load(&fsm.OpenSession{Nonce: 1}).(fsm.Session)
		once := func(i int) {
			number := uint64(i + n + 1)
			m.do(&fsm.Once{
				Session: s, Number: number, Settled: number - uint64(n), Command: &fsm.Put{Key: "k"},
			})
		}
		next := 0
		for ; next < n; next++ {
			once(next)
		}
		return func(int) int { once(next); next++; return 1 }
	}},
}
