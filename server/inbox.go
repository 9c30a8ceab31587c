package server

import (
	"math"
	"runtime"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
)

// maxQueued is how many client requests can wait for the core's next step. Further requests are
// rejected immediately. The leader's own commands do not pass through the inbox, so leases expire
// no matter how busy clients are (T13).
const maxQueued = 1 << 16

// inbox receives work for the core from the clients' goroutines and the disk's. The core takes
// everything that has arrived since its last step in one batch, up to maxTaken requests of each
// type.
type inbox struct {
	wake   chan struct{} // has a token while there is work to take
	gather gather        // used only by the core

	mu sync.Mutex
	mail
	closed bool
	room   *sync.Cond // signaled when messages have been taken or the inbox has been closed
}

// maxMessages is how many messages from other members can wait for the core's next step. Further
// messages wait on their connections, which slows down the senders.
const maxMessages = 1 << 12

// mail is the content of an inbox.
type mail struct {
	shell.Mail
	renewing int // number of Renewals plus the sizes of Together
}

func newInbox() *inbox {
	b := &inbox{wake: make(chan struct{}, 1), gather: gather{yield: runtime.Gosched}}
	b.room = sync.NewCond(&b.mu)
	return b
}

// gather lets more requests arrive before a step. The first request wakes the core, but goroutines
// that are ready to run may be about to add others. A step that serves them all costs little more
// than a step for one.
type gather struct {
	yield func()    // runtime.Gosched, except in tests
	until time.Time // wait returns immediately until then
}

const (
	// If a yield takes longYield, many goroutines are ready to run. The core then does not yield for
	// gatherPause times as long, because heartbeats and renewals must not wait for all of them.
	longYield   = time.Millisecond
	gatherPause = 10
)

// wait lets the goroutines that are ready to run go first.
func (g *gather) wait() {
	began := time.Now()
	if began.Before(g.until) {
		return
	}
	g.yield()
	if now := time.Now(); now.Sub(began) >= longYield {
		g.until = now.Add(gatherPause * now.Sub(began))
	}
}

// task queues a function for the core to call. It returns false if the core has stopped.
func (b *inbox) task(f func()) bool {
	return b.put(func(m *mail) { m.Tasks = append(m.Tasks, f) })
}

// putMessage adds a message from another member. It waits while the inbox is full.
func (b *inbox) putMessage(m *replica.Message) {
	b.put(func(box *mail) {
		for !b.closed && len(box.Messages) >= maxMessages {
			b.room.Wait() // releases the lock in the meantime
		}
		box.Messages = append(box.Messages, m)
	})
}

// ask adds client requests. The function used returns how many requests of their type would then be
// queued. If there would be too many, ask returns an error.
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

// delayOver notifies the core that the commit delay is over.
func (b *inbox) delayOver() { b.put(func(box *mail) { box.DelayOver = true }) }

// put adds work. It returns false if the core has stopped. Everything enters the inbox through put,
// and client requests that can be rejected enter through ask.
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

// persisted notifies the core that an append message is durable.
func (b *inbox) persisted(m *raftpb.Message) {
	b.put(func(box *mail) { box.Persisted = append(box.Persisted, m) })
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// maxTaken is how many requests of each type the core takes per step, which is a few milliseconds
// of work. The others wait for the next step, which follows immediately.
const maxTaken = 1 << 14

// take returns the waiting work, but no more client requests than one step has time for. It reuses
// the memory of spare for later work.
func (b *inbox) take(spare shell.Mail) shell.Mail {
	m, left := b.takeMost(spare.Emptied(), maxTaken)
	if left {
		b.signal()
	}
	return m
}

// takeMost takes at most this many requests of each type, and reports whether any are left. It
// takes all cache messages, because they must not be delayed past a read that arrived after them.
func (b *inbox) takeMost(spare shell.Mail, most int) (m shell.Mail, left bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m = b.Mail
	b.mail = mail{Mail: spare}
	b.Proposals, m.Proposals = split(m.Proposals, b.Proposals, most)
	b.Reads, m.Reads = split(m.Reads, b.Reads, most)
	b.Renewals, m.Renewals = split(m.Renewals, b.Renewals, most)
	b.Together, m.Together = split(m.Together, b.Together, few(m.Together, most))
	b.Abandoned, m.Abandoned = split(m.Abandoned, b.Abandoned, most)
	b.renewing = len(b.Renewals)
	for _, r := range b.Together {
		b.renewing += r.Size()
	}
	b.room.Broadcast()
	left = b.renewing+len(b.Proposals)+len(b.Reads)+len(b.Abandoned) > 0
	return m, left
}

// few returns how many batches, starting with the first, are needed to reach this many leases. If
// all of them together have fewer, it returns len(batches).
func few(batches []*replica.Renewals, leases int) (n int) {
	for n < len(batches) && leases > 0 {
		leases -= batches[n].Size()
		n++
	}
	return n
}

// split takes up to most elements from the beginning of a list, and copies the rest into spare's
// memory.
func split[T any](list, spare []T, most int) (left, taken []T) {
	if len(list) <= most {
		return spare, list
	}
	return append(spare, list[most:]...), list[:most:most]
}

// close makes the inbox reject further work, and returns the remaining work.
func (b *inbox) close() shell.Mail {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	m, _ := b.takeMost(shell.Mail{}, math.MaxInt)
	return m
}
