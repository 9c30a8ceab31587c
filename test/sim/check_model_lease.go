package sim

import (
	"slices"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// This file contains the model's leases. They have no notion of time.

type modelLease struct {
	lease.Terms
	token     lease.Token
	remaining lease.TTL
	stamp     uint64
	delayed   bool // the lease has ended, and its lock delay is running
	existed   bool // in a result: the lease existed before the grant
}

func (l modelLease) equal(o modelLease) bool {
	return l.token == o.token && l.remaining == o.remaining && l.stamp == o.stamp &&
		l.delayed == o.delayed && l.existed == o.existed && sameTerms(l.Terms, o.Terms)
}

// modelStep is a change to a lease: an event, or a renewal through the log, which has kind 0.
type modelStep struct {
	modelLease // the state afterwards, or the last state of an ended lease
	kind       fsm.LeaseEventKind
	by         string
	revision   int64
	keys       []string // the deleted or detached keys
}

// ends reports whether the step ends a lease or begins its lock delay.
func (s *modelStep) ends() bool {
	return s.kind == fsm.LeaseExpired || s.kind == fsm.LeaseReleased || s.kind == fsm.LeaseRevoked
}

// leaves reports whether the step removes the lease.
func (s *modelStep) leaves() bool {
	return s.ends() && (s.kind != fsm.LeaseExpired || !s.delayed)
}

// modelRun is a command being executed. It collects the effects on leases, and maps the ID in a
// repeated grant to the existing lease.
type modelRun struct {
	r     *modelResult
	alias map[lease.ID]lease.ID
	// fresh maps each bound lease granted by the command to its key, or to "" while it has none.
	fresh map[lease.ID]string
	grows bool // the command has put or granted something
}

func (x *modelRun) actual(id lease.ID) lease.ID {
	if actual, ok := x.alias[id]; ok {
		return actual
	}
	return id
}

func (x *modelRun) step(kind fsm.LeaseEventKind, l *modelLease) *modelStep {
	x.r.steps = append(x.r.steps, modelStep{modelLease: *l, kind: kind})
	return &x.r.steps[len(x.r.steps)-1]
}

// live returns a live lease. If token is not 0, it must match.
func (m *model) live(id lease.ID, token lease.Token) *modelLease {
	i, ok := m.lease(id)
	if !ok || m.leases[i].delayed || token != 0 && m.leases[i].token != token {
		return nil
	}
	return &m.leases[i]
}

func (m *model) alive(id lease.ID) bool { return m.live(id, 0) != nil }

// named returns the lease with a name.
func (m *model) named(name string) *modelLease {
	i := slices.IndexFunc(m.leases, func(l modelLease) bool { return name != "" && l.Name == name })
	if i < 0 {
		return nil
	}
	return &m.leases[i]
}

// identified returns the lease identified by an ID, a name or both, or 0 if there is none.
func (m *model) identified(x *modelRun, id lease.ID, name string) lease.ID {
	id = x.actual(id)
	if name == "" {
		return id
	}
	l := m.named(name)
	if l == nil || id != 0 && l.ID != id {
		return 0
	}
	return l.ID
}

// leaseCommand performs a command that affects only leases.
func (m *model) leaseCommand(r *modelResult, c fsm.Command) {
	x := &modelRun{r: r}
	switch c := c.(type) {
	case *fsm.Grant:
		if len(m.alarms) > 0 && !m.repeats(&c.Terms) {
			r.err = fsm.ErrNoSpace
			break
		}
		r.err = m.grant(x, c)
	case *fsm.Revoke:
		r.err = m.revoke(x, c)
	case *fsm.ChangeTTL:
		l := m.live(m.identified(x, c.ID, c.Name), c.Token)
		r.err = m.succeed(x, fsm.LeaseTTLChanged, l, func(l *modelLease) { l.TTL = c.TTL })
	case *fsm.HandOver:
		l := m.live(m.identified(x, c.ID, c.Name), c.Token)
		if l != nil && len(m.alarms) > 0 && l.takesMore(c) {
			r.err = fsm.ErrNoSpace
			break
		}
		r.err = m.succeed(x, fsm.LeaseHandedOver, l, func(l *modelLease) {
			l.Owner, l.Secret = c.Owner, c.Secret
		})
	case *fsm.Resume:
		l := m.live(m.identified(x, c.ID, c.Name), 0)
		if l != nil && (c.Secret == (lease.Secret{}) || c.Secret != l.Secret) {
			l = nil
		}
		r.err = m.succeed(x, fsm.LeaseResumed, l, func(*modelLease) {})
	}
	if len(r.events) > 0 {
		m.revision++
	}
	x.date(m.revision)
}

// forget drops the steps of leases that the command both granted and ended, because no client is
// notified of them. last is the last token before the command.
func (x *modelRun) forget(last lease.Token) {
	var gone []lease.Token
	for i := range x.r.steps {
		if s := &x.r.steps[i]; s.token > last && s.kind == fsm.LeaseRevoked {
			gone = append(gone, s.token)
		}
	}
	x.r.steps = slices.DeleteFunc(x.r.steps, func(s modelStep) bool {
		return slices.Contains(gone, s.token)
	})
}

// date sets the revision of every step.
func (x *modelRun) date(revision int64) {
	for i := range x.r.steps {
		x.r.steps[i].revision = revision
	}
}

// succeed changes a lease and restarts its TTL. If another holder takes over, the lease gets a new
// token.
func (m *model) succeed(
	x *modelRun, kind fsm.LeaseEventKind, l *modelLease, change func(*modelLease),
) error {
	if l == nil {
		return lease.ErrNotFound
	}
	by := ""
	if kind == fsm.LeaseHandedOver {
		by = l.Owner
	}
	change(l)
	l.stamp++
	l.remaining = 0
	if kind == fsm.LeaseHandedOver || kind == fsm.LeaseResumed {
		m.lastToken++
		l.token, l.RequestID = m.lastToken, ""
	}
	x.step(kind, l).by = by
	x.r.record(l)
	return nil
}

// record sets the lease returned by a command.
func (r *modelResult) record(l *modelLease) {
	c := *l
	r.lease = &c
}

// takesMore reports whether a hand-over increases the size of a lease.
func (l *modelLease) takesMore(c *fsm.HandOver) bool {
	after := l.Terms
	after.Owner, after.Secret, after.RequestID = c.Owner, c.Secret, ""
	return after.Bytes() > l.Bytes()
}

// repeatedBy reports whether a grant repeats the request that created the lease.
func (l *modelLease) repeatedBy(t *lease.Terms) bool {
	return t.RequestID != "" && l.RequestID == t.RequestID && l.Owner == t.Owner &&
		l.Name == t.Name && !l.delayed
}

// repeats reports whether a grant finds the lease that the same request has already created.
func (m *model) repeats(t *lease.Terms) bool {
	if i, there := m.lease(t.ID); there {
		return m.leases[i].repeatedBy(t)
	}
	named := m.named(t.Name)
	return named != nil && named.repeatedBy(t)
}

func (m *model) grant(x *modelRun, c *fsm.Grant) error {
	t := &c.Terms
	i, there := m.lease(t.ID)
	named := m.named(t.Name)
	switch {
	case t.ID <= 0:
		return lease.ErrBadID
	case t.TTL <= 0 || t.LockDelay < 0:
		return &lease.TTLError{}
	case there && !m.leases[i].repeatedBy(t):
		return lease.ErrExists
	case there:
		m.again(x, c, &m.leases[i])
		return nil
	case named != nil && !named.repeatedBy(t):
		return &lease.NameError{Name: t.Name}
	case named != nil:
		if x.alias == nil {
			x.alias = make(map[lease.ID]lease.ID)
		}
		x.alias[t.ID] = named.ID
		m.again(x, c, named)
		return nil
	}
	x.grows = true
	delete(x.alias, t.ID)
	delete(x.fresh, t.ID)
	if t.Bound {
		if x.fresh == nil {
			x.fresh = make(map[lease.ID]string)
		}
		x.fresh[t.ID] = ""
	}
	m.lastToken++
	m.leases = slices.Insert(m.leases, i, modelLease{Terms: *t, token: m.lastToken, stamp: 1})
	x.step(fsm.LeaseGranted, &m.leases[i])
	x.r.record(&m.leases[i])
	return nil
}

// again handles a repeated grant.
func (m *model) again(x *modelRun, c *fsm.Grant, l *modelLease) {
	if c.Renew {
		_ = m.succeed(x, 0, l, func(*modelLease) {}) // the lease exists
	}
	x.r.record(l)
	x.r.lease.existed = true
}

// revoke ends a lease, even during its lock delay, and deletes its keys.
func (m *model) revoke(x *modelRun, c *fsm.Revoke) error {
	i, ok := m.lease(m.identified(x, c.ID, c.Name))
	if !ok || c.Token != 0 && c.Token != m.leases[i].token {
		return lease.ErrNotFound
	}
	l := m.leases[i]
	s := x.step(fsm.LeaseRevoked, &l)
	s.by = c.By
	s.keys = m.remove(x, i, false)
	return nil
}

// remove removes a lease. Its keys are deleted, or only detached if keep is set.
func (m *model) remove(x *modelRun, i int, keep bool) (keys []string) {
	id := m.leases[i].ID
	m.leases = slices.Delete(m.leases, i, i+1)
	at := m.revision + 1
	rest := m.keys[:0]
	for _, k := range m.keys {
		if k.lease == id {
			keys = append(keys, k.key)
			ev := modelEvent{revision: at, deleted: !keep, key: k.key}
			if keep {
				k.lease, k.mod, k.version = 0, at, k.version+1
				ev.value = k.value
			}
			x.r.events = append(x.r.events, ev)
		}
		if k.lease != id || keep {
			rest = append(rest, k)
		}
	}
	m.keys = rest
	return keys
}

// bind reports whether a bound lease accepts a key that this run attaches.
func (m *model) bind(x *modelRun, before *model, id lease.ID, key string) bool {
	only, fresh := x.fresh[id]
	if !fresh {
		i := slices.IndexFunc(before.keys, func(k modelKey) bool { return k.lease == id })
		return i >= 0 && before.keys[i].key == key
	}
	x.fresh[id] = key
	return only == "" || only == key
}

// settle ends bound leases whose key was deleted or attached elsewhere.
func (m *model) settle(x *modelRun) {
	for i := 0; i < len(m.leases); i++ {
		l := m.leases[i]
		if !l.Bound || slices.ContainsFunc(m.keys, func(k modelKey) bool { return k.lease == l.ID }) {
			continue
		}
		x.step(fsm.LeaseRevoked, &l).by = fsm.ByKey
		m.leases = slices.Delete(m.leases, i, i+1)
		i--
	}
}

// expire expires one lease or begins its lock delay. Each expiry creates a revision if the lease
// has keys.
func (m *model) expire(r *modelResult, i int) {
	x, l := &modelRun{r: r}, &m.leases[i]
	before, first := len(r.events), len(r.steps)
	switch {
	case l.LockDelay > 0 && !l.delayed:
		l.delayed = true
		l.stamp++
		l.remaining = 0
		x.step(fsm.LeaseExpired, l)
	default:
		kind := fsm.LeaseExpired
		if l.delayed {
			kind = fsm.LeaseReleased
		}
		gone := *l
		x.step(kind, &gone)
		r.steps[first].keys = m.remove(x, i, gone.KeepKeys)
	}
	if len(r.events) > before {
		m.revision++
	}
	r.steps[first].revision = m.revision
}

func (m *model) expireAll(r *modelResult, term uint64, c *fsm.Expire) {
	if c.Term != term {
		r.err = fsm.ErrStale
		return
	}
	for _, d := range c.Leases {
		i, ok := m.lease(d.ID)
		if ok && m.leases[i].token == d.Token && m.leases[i].stamp == d.Stamp {
			m.expire(r, i)
		}
	}
}

func (m *model) checkpoint(r *modelResult, term uint64, c *fsm.Checkpoint) {
	if c.Term != term {
		r.err = fsm.ErrStale
		return
	}
	for _, p := range c.Leases {
		i, ok := m.lease(p.ID)
		if !ok || m.leases[i].token != p.Token || p.Remaining < 0 {
			continue
		}
		if p.Remaining > 0 && p.Stamp != 0 && p.Stamp != m.leases[i].stamp ||
			p.Remaining == 0 && m.leases[i].delayed {
			r.void = append(r.void, p.ID)
			continue
		}
		if p.Remaining == 0 && m.leases[i].remaining != 0 {
			m.leases[i].stamp++
		}
		m.leases[i].remaining = p.Remaining
	}
}
