package waitqueue

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// member is a member without a log: a state machine, a hub and queues. Only one goroutine may call
// apply.
type member struct {
	machine *fsm.Machine
	view    atomic.Pointer[fsm.View]
	hub     *watch.Hub[*api.Event]
	queues  *Queues
}

func newMember(backlog int) *member {
	m := &member{machine: fsm.New(fsm.Config{})}
	m.machine.Begin(1, 1)
	m.machine.Lessor().Advance(1)
	m.machine.Lessor().Promote(1)
	m.view.Store(m.machine.View())
	m.hub = watch.New(func() watch.History[*api.Event] {
		return api.NewHistory(m.view.Load().KV)
	}, watch.Options{Backlog: watch.Limit{Events: backlog}})
	m.queues = New(m.hub, func() *mvcc.View { return m.view.Load().KV })
	return m
}

// apply applies a command as a member does, updating the view before publishing the events. It
// returns the revision.
func (m *member) apply(t testing.TB, c fsm.Command) int64 {
	t.Helper()
	revision, publish := m.applyUnpublished(t, c)
	publish()
	return revision
}

// applyUnpublished applies a command and returns a function that publishes its events.
func (m *member) applyUnpublished(t testing.TB, c fsm.Command) (revision int64, publish func()) {
	t.Helper()
	m.machine.Begin(m.machine.Index()+1, 1)
	res := m.machine.Apply(c)
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	v := m.machine.View()
	m.view.Store(v)
	changes := m.machine.TakeChanges()
	return v.KV.Revision(), func() {
		for _, change := range changes {
			events := make([]*api.Event, len(change.Events))
			for i := range change.Events {
				events[i] = api.NewEvent(&change.Events[i])
			}
			m.hub.Publish(change.Revision, events)
		}
	}
}

func (m *member) grant(t testing.TB, list ...lease.ID) {
	t.Helper()
	for _, id := range list {
		m.apply(t, &fsm.Grant{Terms: lease.Terms{ID: id, TTL: 100_000}})
	}
}

func (m *member) put(t testing.TB, key string, id lease.ID, value string) int64 {
	t.Helper()
	return m.apply(t, &fsm.Put{Key: key, Lease: id, Value: []byte(value)})
}

func (m *member) remove(t testing.TB, key string) int64 {
	t.Helper()
	return m.apply(t, &fsm.DeleteRange{Key: key})
}

// recorder is a waiter that records its notifications.
type recorder struct {
	mu   sync.Mutex // guards the following fields
	list []News
}

func (w *recorder) Notify(n News) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, n)
}

// take returns and clears the recorded notifications.
func (w *recorder) take() []News {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.list
	w.list = nil
	return list
}

func keyOf(id lease.ID) string { return fmt.Sprintf("l/%x", int64(id)) }

// wait waits for a lease's ticket with one permit, as for a mutex.
func (m *member) wait(t testing.TB, id lease.ID, want State) (*Entry, *recorder) {
	t.Helper()
	w := &recorder{}
	e, n := m.queues.Wait(Ask{Key: keyOf(id), Prefix: "l/", Permits: 1},
		m.view.Load().KV.Revision(), w)
	if n.State != want {
		t.Fatalf("ticket of %d: %+v, want state %d", id, n, want)
	}
	return e, w
}

func (w *recorder) want(t testing.TB, want ...State) []News {
	t.Helper()
	list := w.take()
	same := len(list) == len(want)
	for i := range list {
		same = same && list[i].State == want[i]
	}
	if !same {
		t.Fatalf("got %+v, want states %v", list, want)
	}
	return list
}
