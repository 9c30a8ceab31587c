package lock

import "context"

// TryLate is TryLock for a session that found the lock free, but has lost a race for it. It calls
// happens at that moment.
func (m *Mutex) TryLate(ctx context.Context, happens func()) (*Held, error) {
	p, err := m.queue.enter(ctx, false)
	if err == nil {
		happens()
		err = p.ready(ctx)
	}
	return p.hold(m.name, err)
}
