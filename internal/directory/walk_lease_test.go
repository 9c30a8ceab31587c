package directory

import (
	"maps"
	"slices"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// walkTokens holds the last token assigned, and the orphans of earlier tokens.
type walkTokens struct {
	last    lease.Token
	orphans map[lease.Token]Orphan
}

func (w *walk) end(id lease.ID) {
	l := w.leases[id]
	delete(w.leases, id)
	for k := range l.keys {
		w.change(keyrange.Range{Key: k})
	}
	w.note("lease %d has ended", id)
}

func (w *walk) token() lease.Token {
	w.old.last++
	return w.old.last
}

// orphan turns the holds of a lease into an orphan before the lease expires.
func (w *walk) orphan(id lease.ID, l *walkLease) {
	if len(l.holds) > 0 {
		o := Orphan{
			ID: id, Token: l.token, Ranges: l.holds, TTL: lease.TTL(w.ttl), Until: l.expiry,
		}
		w.old.orphans[l.token] = o
		w.dir.Orphan(o, false)
	}
}

// drop proposes to remove orphans whose caches are empty.
func (w *walk) drop() {
	tokens := w.dir.TakeStopped(1 + w.rng.IntN(2))
	if len(tokens) == 0 {
		return
	}
	w.propose(&proposal{
		w: &Write{},
		apply: func() {
			for _, token := range tokens {
				delete(w.old.orphans, token)
				w.dir.Release(token)
			}
		},
		lost: func() { w.dir.NotDropped(tokens) },
	})
}

func (w *walk) revoke() {
	if id := w.someLease(); id != 0 {
		token := w.leases[id].token
		w.propose(&proposal{
			w: &Write{Ends: []lease.ID{id}},
			apply: func() {
				if l := w.leases[id]; l != nil && l.token == token {
					w.orphan(id, l)
					w.end(id)
				}
			},
		})
	}
}

// resume gives a lease to another holder, which has no cache.
func (w *walk) resume() {
	if id := w.someLease(); id != 0 {
		w.propose(&proposal{
			w: &Write{},
			apply: func() {
				if l := w.leases[id]; l != nil {
					w.orphan(id, l)
					l.token, l.holds, l.expiry = w.token(), nil, max(l.expiry, w.now+w.ttl)
					l.stamp++
					w.note("lease %d has another holder", id)
				}
			},
		})
	}
}

func (w *walk) expire() {
	for _, id := range slices.Sorted(maps.Keys(w.leases)) {
		l := w.leases[id]
		if l.expiring || l.expiry > w.now {
			continue
		}
		l.expiring = true
		stamp := l.stamp
		w.propose(&proposal{
			w: &Write{Ends: []lease.ID{id}, Urgent: true},
			apply: func() {
				if l.expiring = false; w.leases[id] == l && l.stamp == stamp {
					w.dir.Release(l.token)
					w.end(id)
				}
			},
			lost: func() { l.expiring = false },
		})
	}
}
