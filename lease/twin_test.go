package lease

import (
	"cmp"
	"slices"
)

// twin is a slow but obviously correct Lessor: a map that it scans in full to answer each question.
type twin struct {
	cfg     Config
	now     Instant
	leases  map[ID]*twinLease
	owner   map[string]ID
	tokens  Token
	primary bool
	began   Instant // when it became primary
	groups  map[GroupID]*twinGroup
}

type twinGroup struct {
	ttl            TTL
	renewed, quiet Instant
	left           []ID
}

type twinLease struct {
	Info
	// countdown is the expiry that a follower would count down to, or 0 if there is none.
	countdown Instant
	// The remaining fields are meaningful only on a primary.
	expiry, quiet     Instant
	expiring, pending bool
	group             GroupID
}

func (t *twin) openGroup(id GroupID, ttl TTL) {
	if t.primary {
		t.groups[id] = &twinGroup{ttl: ttl}
		t.renewGroup(id)
	}
}

func (t *twin) renewGroup(id GroupID) (TTL, bool) {
	g := t.groups[id]
	if g == nil {
		return 0, false
	}
	g.renewed = t.now
	g.quiet = t.now + 1 + Instant(min(max(g.ttl/5*2, 1), t.cfg.CheckpointInterval))
	return g.ttl, true
}

func (t *twin) join(id GroupID, lease ID, token Token) bool {
	t.settle()
	g, l := t.groups[id], t.held(lease, token)
	if g == nil || l == nil || l.TTL != g.ttl || l.expiring || l.pending || l.Remaining != 0 ||
		l.end(t) <= t.now || l.group == 0 && l.quiet <= t.now {
		return false
	}
	if l.group != id {
		t.part(l, true)
		l.group = id
	}
	return true
}

// end returns the instant at which the lease may end.
func (l *twinLease) end(t *twin) Instant {
	if g := t.groups[l.group]; g != nil {
		return max(l.expiry, g.renewed+Instant(g.ttl)+1)
	}
	return l.expiry
}

func (t *twin) part(l *twinLease, report bool) {
	g := t.groups[l.group]
	if g == nil {
		return
	}
	if l.expiry, l.quiet = l.end(t), max(l.quiet, g.quiet); report {
		g.left = append(g.left, l.ID)
	}
	id := l.group
	l.group = 0
	for _, other := range t.leases {
		if other.group == id {
			return
		}
	}
	delete(t.groups, id)
}

func (t *twin) leave(id GroupID, lease ID, asOf Instant) {
	if l := t.leases[lease]; l != nil && l.group == id && id != 0 {
		g := t.groups[id]
		last := *g
		if asOf < g.renewed { // restore the group's state as of that instant
			g.renewed, g.quiet = asOf, asOf+g.quiet-g.renewed
		}
		t.part(l, false)
		*g = twinGroup{ttl: last.ttl, renewed: last.renewed, quiet: last.quiet, left: g.left}
		t.abandon(lease)
	}
}

func (t *twin) left(id GroupID) ([]ID, bool) {
	g := t.groups[id]
	if g == nil {
		return nil, false
	}
	left := g.left
	g.left = nil
	return left, true
}

func (t *twin) endGroup(id GroupID, untended bool) {
	for _, l := range t.leases {
		if l.group == id && id != 0 {
			t.part(l, false)
			if untended {
				l.untended(t)
			}
		}
	}
	delete(t.groups, id)
}

// settle ends silent groups.
func (t *twin) settle() {
	for id, g := range t.groups {
		if g.quiet <= t.now {
			for _, l := range t.leases {
				if l.group == id {
					t.part(l, false)
				}
			}
			delete(t.groups, id)
		}
	}
}

// span returns the duration being counted: the TTL or the lock delay.
func (l *twinLease) span() TTL {
	if l.Delayed {
		return l.LockDelay
	}
	return l.TTL
}

func (l *twinLease) silence(t *twin) Instant {
	return Instant(min(max(l.span()/5*2, 1), t.cfg.CheckpointInterval)) + 1
}

// again returns the time from one checkpoint to the next.
func (l *twinLease) again(t *twin) Instant {
	full := Instant(min(max(l.span()/5*2, 1000), t.cfg.CheckpointInterval))
	soon := l.silence(t) - 1
	if t.cfg.Untended > 0 {
		soon = min(soon, Instant(t.cfg.Untended))
	}
	return min(full, max(soon, t.now-t.began))
}

// checkpointAll reports every checkpointed lease again.
func (t *twin) checkpointAll() {
	for _, l := range t.leases {
		if t.primary && l.Remaining != 0 {
			l.quiet = min(l.quiet, t.now)
		}
	}
}

// held returns a live lease with the given ID and token; token 0 matches any.
func (t *twin) held(id ID, token Token) *twinLease {
	l := t.leases[id]
	if l == nil || l.Delayed || token != 0 && l.Token != token {
		return nil
	}
	return l
}

func (t *twin) grant(terms Terms) (Info, error) {
	if terms.ID <= 0 {
		return Info{}, ErrBadID
	}
	if terms.TTL < t.cfg.MinTTL || terms.TTL > t.cfg.MaxTTL ||
		terms.LockDelay < 0 || terms.LockDelay > t.cfg.MaxTTL {
		return Info{}, &TTLError{}
	}
	same := func(l *twinLease) bool {
		return !l.Delayed && terms.RequestID != "" && l.RequestID == terms.RequestID &&
			l.Owner == terms.Owner && l.Name == terms.Name && l.Principal == terms.Principal
	}
	if l := t.leases[terms.ID]; l != nil {
		if same(l) {
			return l.Info, nil
		}
		return Info{}, ErrExists
	}
	for _, l := range t.leases {
		if terms.Name != "" && l.Name == terms.Name {
			if same(l) {
				return l.Info, nil
			}
			return Info{}, &NameError{Name: l.Name, Holder: l.Info}
		}
	}
	t.tokens++
	l := &twinLease{Info: Info{Terms: terms, Token: t.tokens, Stamp: 1}}
	t.leases[terms.ID] = l
	l.renewed(t)
	l.untended(t)
	return l.Info, nil
}

func (l *twinLease) untended(t *twin) {
	if t.cfg.Untended > 0 {
		l.quiet = min(l.quiet, t.now+Instant(t.cfg.Untended)+1)
	}
}

func (t *twin) abandon(id ID) {
	l := t.leases[id]
	if t.primary && l != nil && !l.expiring && !l.pending && l.Remaining == 0 && l.expiry > t.now &&
		l.group == 0 {
		l.quiet = min(l.quiet, t.now+l.silence(t))
		l.untended(t)
	}
}

func (l *twinLease) renewed(t *twin) {
	l.expiry = max(l.expiry, t.now+Instant(l.span())+1)
	l.quiet = t.now + l.silence(t)
}

// refresh gives the lease its full TTL and invalidates earlier decisions.
func (l *twinLease) refresh(t *twin) {
	t.part(l, true)
	l.Stamp++
	l.Remaining, l.countdown = 0, 0
	l.renewed(t)
}

func (t *twin) changeTTL(id ID, token Token, ttl TTL) (Info, error) {
	if ttl < t.cfg.MinTTL || ttl > t.cfg.MaxTTL {
		return Info{}, &TTLError{}
	}
	l := t.held(id, token)
	if l == nil || token == 0 {
		return Info{}, ErrNotFound
	}
	t.part(l, true)
	l.TTL = ttl
	l.refresh(t)
	return l.Info, nil
}

func (t *twin) touch(id ID, token Token) (Info, error) {
	l := t.held(id, token)
	if l == nil {
		return Info{}, ErrNotFound
	}
	l.refresh(t)
	return l.Info, nil
}

func (t *twin) handOver(id ID, token Token, to Terms) (Info, error) {
	l := t.held(id, token)
	if l == nil || token == 0 {
		return Info{}, ErrNotFound
	}
	l.Owner, l.Principal, l.Secret = to.Owner, to.Principal, to.Secret
	return l.succeed(t), nil
}

func (t *twin) resume(id ID, s Secret) (Info, error) {
	l := t.held(id, 0)
	if l == nil || s == (Secret{}) || l.Secret != s {
		return Info{}, ErrNotFound
	}
	return l.succeed(t), nil
}

func (l *twinLease) succeed(t *twin) Info {
	l.RequestID = ""
	t.tokens++
	l.Token = t.tokens
	l.expiring, l.pending = false, false
	l.refresh(t)
	l.untended(t)
	return l.Info
}

func (t *twin) keys(id ID) []string {
	var out []string
	for k, l := range t.owner {
		if l == id {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

func (t *twin) end(id ID) Ended {
	e := Ended{Info: t.leases[id].Info, Keys: t.keys(id), Gone: true}
	for _, k := range e.Keys {
		delete(t.owner, k)
	}
	t.part(t.leases[id], true)
	delete(t.leases, id)
	return e
}

func (t *twin) revoke(id ID) (Ended, error) {
	if t.leases[id] == nil {
		return Ended{}, ErrNotFound
	}
	return t.end(id), nil
}

func (t *twin) expire(d Due) (Ended, bool) {
	l := t.leases[d.ID]
	if l == nil || l.Token != d.Token {
		return Ended{}, false
	}
	if l.Stamp != d.Stamp {
		l.expiring = false
		return Ended{}, false
	}
	if l.LockDelay > 0 && !l.Delayed {
		t.part(l, true)
		l.Delayed, l.expiring, l.pending, l.expiry = true, false, false, 0
		l.refresh(t)
		l.untended(t)
		return Ended{Info: l.Info}, true
	}
	e := t.end(d.ID)
	e.Keep = l.KeepKeys
	return e, true
}

func (t *twin) attach(id ID, key string) error {
	if t.held(id, 0) == nil {
		return ErrNotFound
	}
	if t.owner[key] != id && t.leases[id].Bound && len(t.keys(id)) > 0 {
		return ErrBound
	}
	if t.owner[key] != id && t.cfg.MaxKeys > 0 && len(t.keys(id)) >= t.cfg.MaxKeys {
		return &KeyLimitError{}
	}
	t.owner[key] = id
	return nil
}

func (t *twin) checkpoint(list []Checkpoint) {
	for _, c := range list {
		l := t.leases[c.ID]
		switch {
		case l == nil || l.Token != c.Token:
		case c.Remaining > 0 && c.Stamp != 0 && c.Stamp != l.Stamp:
			l.pending = false
		case c.Remaining == 0 && l.Delayed:
		case c.Remaining > 0:
			l.Remaining = c.Remaining
			l.countdown = t.now + Instant(c.Remaining) + 1
			l.pending = false
			l.quiet = t.now + l.again(t) + 1
		default:
			if l.Remaining != 0 {
				l.Stamp++
			}
			l.Remaining, l.countdown = 0, 0
			l.quiet = min(l.quiet, t.now+l.silence(t))
		}
	}
}

func (t *twin) recount() {
	for _, l := range t.leases {
		if l.Remaining != 0 {
			l.countdown = t.now + Instant(l.Remaining) + 1
		}
	}
}

func (t *twin) demote() {
	t.primary, t.groups = false, nil
	for _, l := range t.leases {
		l.group = 0
	}
}

func (t *twin) promote() {
	t.demote()
	t.primary, t.began, t.groups = true, t.now, map[GroupID]*twinGroup{}
	for _, l := range t.leases {
		l.expiring, l.pending, l.expiry = false, false, 0
		l.renewed(t)
		l.untended(t)
		if l.Remaining != 0 {
			l.expiry = l.countdown
		}
	}
}

func (t *twin) renew(id ID, token Token) (Renewal, error) {
	l := t.held(id, token)
	switch {
	case !t.primary:
		return Renewal{}, ErrNotPrimary
	case l == nil:
		return Renewal{}, ErrNotFound
	case l.expiring:
		return Renewal{}, ErrExpiring
	}
	l.renewed(t)
	return Renewal{TTL: l.TTL, Token: l.Token, Clear: l.Remaining != 0 || l.pending}, nil
}

func (t *twin) due() []Due {
	var out []*twinLease
	for _, l := range t.leases {
		if t.primary && l.end(t) <= t.now && !l.expiring && !l.pending {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b *twinLease) int {
		return cmp.Or(cmp.Compare(a.expiry, b.expiry), cmp.Compare(a.ID, b.ID))
	})
	due := make([]Due, len(out))
	for i, l := range out {
		due[i] = Due{l.ID, l.Token, l.Stamp, TTL(t.now - l.expiry)}
	}
	return due
}

func (t *twin) silent() map[ID]Checkpoint {
	out := map[ID]Checkpoint{}
	for _, l := range t.leases {
		if t.primary && l.group == 0 && l.quiet <= t.now && t.now < l.expiry && !l.expiring && !l.pending {
			out[l.ID] = Checkpoint{l.ID, l.Token, TTL(l.expiry - t.now), l.Stamp}
		}
	}
	return out
}

// next returns the first instant at which due or silent would return something new.
func (t *twin) next() (Instant, bool) {
	at, ok := Instant(0), false
	consider := func(i Instant) {
		if i = max(i, t.now); !ok || i < at {
			at, ok = i, true
		}
	}
	for _, l := range t.leases {
		// A pending lease is skipped until its outcome is known.
		if t.primary && l.group == 0 && !l.expiring && !l.pending {
			consider(min(l.expiry, l.quiet))
		}
	}
	for _, g := range t.groups {
		consider(g.quiet)
	}
	return at, ok
}

func (t *twin) remaining(id ID) (TTL, bool) {
	l := t.leases[id]
	switch {
	case l == nil:
		return 0, false
	case t.primary && l.expiring:
		return 0, true
	case t.primary:
		return max(0, TTL(l.end(t)-t.now)-1), true
	case l.Remaining != 0:
		return max(0, TTL(l.countdown-t.now)-1), true
	}
	return l.span(), true
}
