package lock

import "context"

// TryLate is like TryLock for a session that finds the lock free but then loses a race for it. It
// calls the function happens after entering the queue and before checking whether the session has
// the lock.
func (m *Mutex) TryLate(ctx context.Context, happens func()) (*Held, error) {
	p, err := m.queue.enter(ctx, false)
	if err == nil {
		happens()
		err = p.ready(ctx)
	}
	return p.hold(m.name, err)
}
