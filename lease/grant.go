package lease

import (
	"fmt"
)

// Grant creates a lease and, on a primary, starts timing it. It returns ErrBadID, a *TTLError (for
// a bad TTL or a bad lock delay), ErrExists, or a *NameError. A delayed lease still occupies its ID
// and its name.
//
// A request is a duplicate if a live lease with that ID or name has the same RequestID and Owner.
// In that case, Grant returns the lease that the first request created, without restarting its TTL:
// see Remaining (T3).
func (l *Lessor) Grant(t Terms) (Info, error) {
	if err := l.CheckTerms(&t); err != nil {
		return Info{}, err
	}
	if slot, ok := l.table.find(t.ID); ok {
		if held := l.table.info(slot); t.Repeats(&held) {
			return held, nil
		}
		return Info{}, ErrExists
	}
	if slot, ok := l.table.names.find(t.Name); ok {
		holder := l.table.info(slot)
		if t.Repeats(&holder) {
			return holder, nil
		}
		return Info{}, &NameError{Name: t.Name, Holder: holder}
	}
	slot := l.table.insert(Info{Terms: t, Token: l.nextToken(), Stamp: 1})
	if l.tracker != nil {
		l.tracker.start(slot)
	}
	return l.table.info(slot), nil
}

// CheckTerms returns the error that Grant would return for these terms if there were no leases.
func (l *Lessor) CheckTerms(t *Terms) error {
	if t.ID <= 0 {
		return ErrBadID
	}
	if t.LockDelay < 0 || t.LockDelay > l.cfg.MaxTTL {
		return &TTLError{Got: t.LockDelay, Max: l.cfg.MaxTTL}
	}
	return l.checkTTL(t.TTL)
}

func (l *Lessor) checkTTL(ttl TTL) error {
	if ttl < l.cfg.MinTTL || ttl > l.cfg.MaxTTL {
		return &TTLError{Got: ttl, Min: l.cfg.MinTTL, Max: l.cfg.MaxTTL}
	}
	return nil
}

// Repeats reports whether t repeats the request that created the live lease held. If so, Grant
// returns that lease.
func (t *Terms) Repeats(held *Info) bool {
	if held.Delayed {
		return false // the lease has ended
	}
	return t.RequestID != "" && t.RequestID == held.RequestID && t.Owner == held.Owner &&
		t.Name == held.Name && t.Principal == held.Principal
}

// nextToken returns a new token. It never repeats a token, and panics rather than enter the next
// generation.
func (l *Lessor) nextToken() Token {
	l.lastToken++
	if g := uint64(l.lastToken >> generationShift); g != l.generation {
		panic(fmt.Sprintf("lease: no tokens are left in generation %d", l.generation))
	}
	return l.lastToken
}
