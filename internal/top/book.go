package top

import (
	"time"

	"leasehold.dev/client/leases"
	"leasehold.dev/lease"
)

// maxLeases is how many leases are looked at: more are counted by the cluster, and a prefix or an
// owner leads to them.
const maxLeases = 200_000

// maxEnds is how many events are kept for the pane of ends.
const maxEnds = 1000

// entry is what was last heard of a lease.
type entry struct {
	leases.Info
	// asked is when the answer was asked for that Remaining is of; below 0 if none has come since
	// the lease has had its token and its TTL.
	asked time.Duration
	heard time.Duration
	// hinted says that the member has told of its end, and not of a renewal since.
	hinted bool
}

// until returns the instant up to which the lease certainly lives, unless it is revoked; ok is
// false if that is not known.
func (e *entry) until() (at time.Duration, ok bool) { return e.asked + e.Remaining, e.asked >= 0 }

// The states of a lease, as far as was told.
const (
	alive    = "alive"
	silent   = "silent"   // its holder has not renewed it for more than half of the TTL
	expiring = "expiring" // its end is near, and nobody renews it
	delayed  = "delayed"  // it has expired, and its lock delay runs
)

// state says how the lease was when the cluster was last asked.
func (e *entry) state() string {
	switch {
	case e.Delayed:
		return delayed
	case e.hinted:
		return expiring
	case e.asked < 0:
		return alive
	case e.Remaining <= e.TTL/4:
		return expiring
	case e.Remaining <= e.TTL/2:
		return silent
	}
	return alive
}

// ended is something that happened to a lease, and when the program heard of it.
type ended struct {
	leases.Event
	at time.Duration
}

// book has the leases: a list of all, made once, and what events have told since then.
type book struct {
	all  map[lease.ID]*entry
	ends []ended // the newest last

	// While the leases are listed: those that were listed, and the tokens of those that ended.
	seen   map[lease.ID]bool
	gone   map[lease.ID]lease.Token
	listed bool // at least once
	cut    bool // there are more than maxLeases
}

// begin starts a list of all leases. Events are followed already: so nothing is missed.
func (b *book) begin() {
	b.seen, b.gone, b.cut = make(map[lease.ID]bool), make(map[lease.ID]lease.Token), false
	if b.all == nil {
		b.all = make(map[lease.ID]*entry)
	}
}

// list takes a part of the list, and reports whether the rest is wanted.
func (b *book) list(infos []leases.Info, asked, now time.Duration) bool {
	for i := range infos {
		l := &infos[i]
		b.seen[l.ID] = true
		if b.all[l.ID] == nil && len(b.all) >= maxLeases {
			b.cut = true
			return false
		}
		if token, gone := b.gone[l.ID]; !gone || token != l.Token {
			b.learn(l, asked, now)
		}
	}
	return true
}

// finish ends the list: leases that it has not, and that nothing was heard of since, are gone.
func (b *book) finish(asked time.Duration) {
	for id, e := range b.all {
		if !b.seen[id] && e.heard < asked && !b.cut {
			delete(b.all, id)
		}
	}
	b.seen, b.gone, b.listed = nil, nil, true
}

// learn takes what an answer says of a lease, and when that was asked for. An answer that is older
// than what is known changes nothing.
func (b *book) learn(l *leases.Info, asked, now time.Duration) {
	e := b.all[l.ID]
	switch {
	case e == nil || e.Token < l.Token:
		e = &entry{}
		b.all[l.ID] = e
	case e.Token > l.Token || e.asked > asked:
		return
	case e.Token == l.Token && e.asked < 0 && asked < e.heard:
		return // an event has told of another TTL since
	}
	e.hinted = e.hinted && near(l)
	e.Info, e.asked, e.heard = *l, asked, now
	e.Keys = nil
}

// near reports whether the end of a lease is near enough to tell of, given that nobody renews it: a
// short lease is never far from its end.
func near(l *leases.Info) bool { return l.Remaining <= min(ExpiringWithin, l.TTL/2) }

// answer takes what was told of the leases that were asked for: those without an answer have ended.
func (b *book) answer(ids []lease.ID, infos []leases.Info, asked, now time.Duration) {
	there := make(map[lease.ID]bool, len(infos))
	for i := range infos {
		there[infos[i].ID] = true
		b.learn(&infos[i], asked, now)
	}
	for _, id := range ids {
		if e := b.all[id]; e != nil && !there[id] && e.heard <= asked {
			b.drop(id)
		}
	}
}

func (b *book) drop(id lease.ID) {
	if e := b.all[id]; e != nil {
		if b.gone != nil {
			b.gone[id] = e.Token
		}
		delete(b.all, id)
	}
}

// event takes what happened to a lease.
func (b *book) event(v leases.Event, now time.Duration) {
	switch v.Kind {
	case leases.Expired, leases.Revoked, leases.Released:
		if b.gone != nil {
			b.gone[v.Lease.ID] = v.Lease.Token
		}
		if v.Kind == leases.Expired && v.Lease.LockDelay > 0 {
			v.Lease.Delayed = true
			b.know(v.Lease, now)
		} else {
			b.drop(v.Lease.ID)
		}
	case leases.Granted, leases.HandedOver, leases.Resumed, leases.TTLChanged:
		b.know(v.Lease, now)
	case leases.Expiring, leases.Renewed:
		if e := b.all[v.Lease.ID]; e != nil {
			e.hinted = v.Kind == leases.Expiring && near(&v.Lease)
		}
		return // the lease is in the pane of ends as long as its end is coming
	default:
		return
	}
	b.ends = append(b.ends, ended{v, now})
	if len(b.ends) > 2*maxEnds {
		b.ends = append([]ended(nil), b.ends[len(b.ends)-maxEnds:]...)
	}
}

// know takes what an event says of a lease. What was left then was told of a moment that may be
// long ago: it is to be asked for.
func (b *book) know(l leases.Info, now time.Duration) {
	e := b.all[l.ID]
	switch {
	case e == nil && len(b.all) >= maxLeases:
		b.cut = true
		return
	case e == nil:
		e = &entry{}
		b.all[l.ID] = e
	default:
		l.KeyCount, l.Holds = e.KeyCount, e.Holds // no event tells them
	}
	e.Info, e.asked, e.heard, e.hinted = l, -1, now, false
}
