package native

import (
	"context"
	"sync"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// renewable are leases that one caller was found to hold, by the tokens under which it was: so a
// stream asks once for each lease, and again when users or roles have changed. A lease has another
// token when it is another's. A nil renewable remembers nothing. It is safe for concurrent use.
type renewable struct {
	mu  sync.Mutex // guards what follows
	by  *access.State
	who access.Caller
	of  map[lease.ID]lease.Token
}

// maxRenewable bounds the leases that are remembered.
const maxRenewable = 1 << 17

// unknown returns the places of those that are not known to be held.
func (r *renewable) unknown(a asker, ids []lease.ID, tokens []lease.Token) (places []int) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.by != a.by || r.who != a.who || len(r.of) > maxRenewable {
			r.by, r.who, r.of = a.by, a.who, make(map[lease.ID]lease.Token)
		}
	}
	for i, id := range ids {
		if r == nil || tokens == nil || tokens[i] == 0 || r.of[id] != tokens[i] {
			places = append(places, i)
		}
	}
	return places
}

// add remembers a lease.
func (r *renewable) add(a asker, id lease.ID, token lease.Token) {
	if r == nil || token == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == a.by && r.who == a.who {
		r.of[id] = token
	}
}

// denied returns the places of those leases that the asker may not renew. Of the others it asks
// the core in one piece, without the leader if it can: what a request says with a token holds as
// long as the token does. The leader has the last word in any case, and knows tokens only.
func (s *leases) denied(
	ctx context.Context, known *renewable, ids []lease.ID, tokens []lease.Token,
) (out map[int]bool, err error) {
	a := s.asker(ctx)
	if err := a.known(); err != nil || a.all() {
		return nil, err
	}
	places := known.unknown(a, ids, tokens)
	if len(places) == 0 {
		return nil, nil
	}
	found := make([]held, len(places))
	look := func(l *lease.Lessor) {
		for i, at := range places {
			var info lease.Info
			info, found[i].there = l.Lookup(ids[at])
			found[i].of, found[i].token = fsm.BelongsTo(&info), info.Token
		}
	}
	sure := tokens != nil
	if err := s.node.InspectHere(ctx, func(l *lease.Lessor, _ uint64) { look(l) }); err != nil {
		return nil, err
	}
	for i, at := range places {
		// A member may not know yet what a client was told elsewhere.
		sure = sure && tokens[at] != 0 && found[i].there && found[i].token == tokens[at]
	}
	if !sure {
		if err := s.node.Inspect(ctx, look); err != nil {
			return nil, err
		}
		a = s.asker(ctx)
	}
	for i, at := range places {
		switch f := &found[i]; {
		case !f.there || f.of == (access.Lease{}):
		case a.by.CheckLease(a.who, access.Hold, f.of) != nil:
			if out == nil {
				out = make(map[int]bool)
			}
			out[at] = true
		default:
			known.add(a, ids[at], f.token)
		}
	}
	return out, nil
}

// held is whose a lease is.
type held struct {
	there bool
	of    access.Lease
	token lease.Token
}
