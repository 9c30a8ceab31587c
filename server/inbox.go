package server

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/replica"
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
}

// mail is what an inbox holds.
type mail struct {
	proposals []*replica.Proposal
	reads     []*replica.Read
	renewals  []replica.Renewal
	persisted []*raftpb.Message
	tasks     []func()
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put leaves work, by add. It reports false if the core has stopped; a full
// inbox is the caller's to check with full, since not all work may be refused.
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

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take returns everything that waits, and gives spare's memory to what comes.
func (b *inbox) take(spare mail) mail {
	clear(spare.proposals)
	clear(spare.reads)
	clear(spare.renewals)
	clear(spare.persisted)
	clear(spare.tasks)
	b.mu.Lock()
	m := b.mail
	b.mail = mail{
		proposals: spare.proposals[:0], reads: spare.reads[:0], renewals: spare.renewals[:0],
		persisted: spare.persisted[:0], tasks: spare.tasks[:0],
	}
	b.mu.Unlock()
	return m
}

// close refuses what comes from now on, and returns what was left.
func (b *inbox) close() mail {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	return b.take(mail{})
}
