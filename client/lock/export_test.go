package lock

import "context"

// TryLate is TryLock of a session that has found the lock free, and has lost a race for it since.
func (m *Mutex) TryLate(ctx context.Context) (*Held, error) {
	p, err := m.queue.enter(ctx, false)
	if err == nil {
		err = p.ready(ctx)
	}
	return p.hold(m.name, err)
}
