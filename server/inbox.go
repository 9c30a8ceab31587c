package server

import (
	"math"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
)

// maxQueued is how many client requests may wait for the core's next step. Further requests are
// rejected at once. The leader's own commands do not pass through here, so expiry continues however
// busy clients are (T13).
const maxQueued = 1 << 16

// inbox is where the goroutines of clients and of the disk leave work for the core. The core takes
// everything that has arrived since its last step in one batch, up to maxTaken requests of each
// kind.
type inbox struct {
	wake chan struct{} // has a token while there is something to take

	mu sync.Mutex
	mail
	closed bool
	room   *sync.Cond // signaled when messages were taken, or the inbox was closed
}

// maxMessages is how many messages of other members may wait for the core's next step. Further
// messages wait on their connections, which slows down the senders.
const maxMessages = 1 << 12

// mail is the contents of an inbox.
type mail struct {
	shell.Mail
	renewing int // Renewals, plus the sizes of Together
}

func newInbox() *inbox {
	b := &inbox{wake: make(chan struct{}, 1)}
	b.room = sync.NewCond(&b.mu)
	return b
}

// task leaves a function for the core to call. It returns false if the core has stopped.
func (b *inbox) task(f func()) bool {
	return b.put(func(m *mail) { m.Tasks = append(m.Tasks, f) })
}

// putMessage adds a message of another member, and waits while the inbox is full.
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

// ask adds client requests. used returns how many of their kind would then be queued; if that is
// too many, ask returns an error.
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

// delayOver reports that the commit delay is over.
func (b *inbox) delayOver() { b.put(func(box *mail) { box.DelayOver = true }) }

// put adds work. It returns false if the core has stopped.
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

// persisted reports that an append message is durable.
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

// maxTaken is how many requests of each kind the core takes for one step: a few milliseconds'
// worth. The others wait for the next step, which follows at once.
const maxTaken = 1 << 14

// take returns the waiting work, with no more client requests than a step has time for, and reuses
// spare's memory for later work.
func (b *inbox) take(spare shell.Mail) shell.Mail {
	m, left := b.takeMost(spare.Emptied(), maxTaken)
	if left {
		b.signal()
	}
	return m
}

// takeMost takes at most this many requests of each kind, and reports whether any are left. Cache
// messages are taken as a whole, because they must not be delayed past a read that arrived after
// them.
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

// few returns how many batches, from the first on, it takes to reach this many leases, or
// len(batches) if all of them together have fewer.
func few(batches []*replica.Renewals, leases int) (n int) {
	for n < len(batches) && leases > 0 {
		leases -= batches[n].Size()
		n++
	}
	return n
}

// split takes the first elements of a list, as many as most, and copies the rest to spare's memory.
func split[T any](list, spare []T, most int) (left, taken []T) {
	if len(list) <= most {
		return spare, list
	}
	return append(spare, list[most:]...), list[:most:most]
}

// close rejects later work, and returns what was left.
func (b *inbox) close() shell.Mail {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	m, _ := b.takeMost(shell.Mail{}, math.MaxInt)
	return m
}
