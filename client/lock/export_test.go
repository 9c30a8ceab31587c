package lock

import "context"

// TryLate is TryLock of a session that has found the lock free, and has lost a race for it since.
// Something happens then.
func (m *Mutex) TryLate(ctx context.Context, happens func()) (*Held, error) {
	p, err := m.queue.enter(ctx, false)
	if err == nil {
		happens()
		err = p.ready(ctx)
	}
	return p.hold(m.name, err)
}
