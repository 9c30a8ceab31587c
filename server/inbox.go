package server

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
)

// maxQueued is how many requests of clients may wait for the core's next
// step. Beyond it they are refused at once. The leader's own commands do
// not pass through here, so expiry goes on however busy clients are (T13).
const maxQueued = 1 << 16

// inbox is where the goroutines of clients and of the disk leave work for the
// core. Everything left since the core last looked is taken in one piece.
type inbox struct {
	wake chan struct{} // holds a token while there is something to take

	mu sync.Mutex
	mail
	closed bool
	room   *sync.Cond // messages were taken, or the inbox was closed
}

// maxMessages is how many messages of other members may wait for the core's next
// step. Beyond it they wait on their connections, which slows the senders.
const maxMessages = 1 << 12

// mail is what an inbox holds.
type mail struct {
	shell.Mail
	renewing int // leases in Renewals and Together
}

func newInbox() *inbox {
	b := &inbox{wake: make(chan struct{}, 1)}
	b.room = sync.NewCond(&b.mu)
	return b
}

// task leaves a function for the core to call. It reports false if the core has
// stopped.
func (b *inbox) task(f func()) bool {
	return b.put(func(m *mail) { m.Tasks = append(m.Tasks, f) })
}

// putMessage leaves a message of another member, when there is room.
func (b *inbox) putMessage(m *replica.Message) {
	b.mu.Lock()
	for !b.closed && len(b.Messages) >= maxMessages {
		b.room.Wait()
	}
	if !b.closed {
		b.Messages = append(b.Messages, m)
	}
	b.mu.Unlock()
	b.signal()
}

// ask leaves requests of clients, by add, unless there are as many of their kind as may
// wait: used says how many that would be. It refuses with an error that says so.
func (b *inbox) ask(used func(*mail) int, add func(*mail)) error {
	full := false
	ok := b.put(func(m *mail) {
		if full = used(m) > maxQueued; !full {
			add(m)
		}
	})
	switch {
	case !ok:
		return api.ErrStopped
	case full:
		return api.ErrTooManyRequests
	default:
		return nil
	}
}

// put leaves work, by add. It reports false if the core has stopped.
func (b *inbox) put(add func(*mail)) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	add(&b.mail)
	b.mu.Unlock()
	b.signal()
	return true
}

// persisted leaves word that an append message is durable.
func (b *inbox) persisted(m *raftpb.Message) {
	b.mu.Lock()
	b.Persisted = append(b.Persisted, m)
	b.mu.Unlock()
	b.signal()
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take returns everything that waits, and gives spare's memory to what comes.
func (b *inbox) take(spare shell.Mail) shell.Mail {
	spare = spare.Emptied()
	b.mu.Lock()
	m := b.Mail
	b.mail = mail{Mail: spare}
	b.room.Broadcast()
	b.mu.Unlock()
	return m
}

// close refuses what comes from now on, and returns what was left.
func (b *inbox) close() shell.Mail {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	return b.take(shell.Mail{})
}
