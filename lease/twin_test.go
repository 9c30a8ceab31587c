package lease

import (
	"cmp"
	"slices"
)

// twin is a Lessor that is slow and obviously right: a map, and a look at every
// lease whenever there is a question.
type twin struct {
	cfg     Config
	now     Instant
	leases  map[ID]*twinLease
	owner   map[string]ID
	tokens  Token
	primary bool
}

type twinLease struct {
	Info
	// countdown, as a follower would count; 0 if there is none.
	countdown Instant
	// What only a primary knows.
	expiry, quiet     Instant
	expiring, pending bool
}

func (t *twin) grant(terms Terms) (Info, error) {
	if terms.ID <= 0 {
		return Info{}, ErrBadID
	}
	if terms.TTL < t.cfg.MinTTL || terms.TTL > t.cfg.MaxTTL {
		return Info{}, &TTLError{}
	}
	same := func(l *twinLease) bool {
		return terms.RequestID != "" && l.RequestID == terms.RequestID && l.Owner == terms.Owner &&
			l.Name == terms.Name
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
	l.heard(t)
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
	if t.primary && l != nil && !l.expiring && !l.pending && l.Remaining == 0 && l.expiry > t.now {
		silence := min(max(l.TTL/5*2, 1), t.cfg.CheckpointInterval)
		l.quiet = min(l.quiet, t.now+Instant(silence)+1)
		l.untended(t)
	}
}

func (l *twinLease) heard(t *twin) {
	l.expiry = max(l.expiry, t.now+Instant(l.TTL)+1)
	l.quiet = t.now + Instant(min(max(l.TTL/5*2, 1), t.cfg.CheckpointInterval)) + 1
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

func (t *twin) end(id ID) []string {
	keys := t.keys(id)
	for _, k := range keys {
		delete(t.owner, k)
	}
	delete(t.leases, id)
	return keys
}

func (t *twin) revoke(id ID) ([]string, error) {
	if t.leases[id] == nil {
		return nil, ErrNotFound
	}
	return t.end(id), nil
}

func (t *twin) expire(d Due) ([]string, bool) {
	l := t.leases[d.ID]
	if l == nil || l.Token != d.Token {
		return nil, false
	}
	if l.Stamp != d.Stamp {
		l.expiring = false
		return nil, false
	}
	return t.end(d.ID), true
}

func (t *twin) attach(id ID, key string) error {
	if t.leases[id] == nil {
		return ErrNotFound
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
		case c.Remaining > 0:
			l.Remaining = c.Remaining
			l.countdown = t.now + Instant(c.Remaining) + 1
			l.pending = false
			l.quiet = t.now + Instant(t.cfg.CheckpointInterval) + 1
		default:
			if l.Remaining != 0 {
				l.Stamp++
			}
			l.Remaining, l.countdown = 0, 0
			silence := min(max(l.TTL/5*2, 1), t.cfg.CheckpointInterval)
			l.quiet = min(l.quiet, t.now+Instant(silence)+1)
		}
	}
}

func (t *twin) promote(extend TTL) {
	t.primary = true
	for _, l := range t.leases {
		l.expiring, l.pending, l.expiry = false, false, 0
		l.heard(t)
		l.untended(t)
		l.expiry += Instant(extend)
		if l.Remaining != 0 {
			l.expiry, l.quiet = l.countdown, t.now+Instant(t.cfg.CheckpointInterval)+1
		}
	}
}

func (t *twin) renew(id ID) (Renewal, error) {
	l := t.leases[id]
	switch {
	case !t.primary:
		return Renewal{}, ErrNotPrimary
	case l == nil:
		return Renewal{}, ErrNotFound
	case l.expiring:
		return Renewal{}, ErrExpiring
	}
	l.heard(t)
	return Renewal{TTL: l.TTL, Clear: l.Remaining != 0 || l.pending}, nil
}

func (t *twin) due() []Due {
	var out []*twinLease
	for _, l := range t.leases {
		if t.primary && l.expiry <= t.now && !l.expiring && !l.pending {
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
		if t.primary && l.quiet <= t.now && t.now < l.expiry && !l.expiring && !l.pending {
			out[l.ID] = Checkpoint{l.ID, l.Token, TTL(l.expiry - t.now)}
		}
	}
	return out
}

// next returns the first instant at which due or silent has something that it
// does not have now.
func (t *twin) next() (Instant, bool) {
	at, ok := Instant(0), false
	consider := func(i Instant) {
		if i = max(i, t.now); !ok || i < at {
			at, ok = i, true
		}
	}
	for _, l := range t.leases {
		// Of a pending lease there is nothing to say before its outcome is known.
		if t.primary && !l.expiring && !l.pending {
			consider(min(l.expiry, l.quiet))
		}
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
		return max(0, TTL(l.expiry-t.now)-1), true
	case l.Remaining != 0:
		return max(0, TTL(l.countdown-t.now)-1), true
	}
	return l.TTL, true
}
