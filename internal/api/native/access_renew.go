package native

import (
	"context"
	"sync"
	"weak"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/lease"
)

// renewable are leases that one caller was found to hold, by the tokens under which it was: so a
// stream asks once for each lease, and again when users or roles have changed. A lease has another
// token when it is another's. A nil renewable remembers nothing. It is safe for concurrent use.
type renewable struct {
	mu  sync.Mutex                 // guards what follows
	by  weak.Pointer[access.State] // a stream that is idle must not keep it in memory
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
		r.beLocked(a)
	}
	for i, id := range ids {
		if r == nil || tokens == nil || tokens[i] == 0 || r.of[id] != tokens[i] {
			places = append(places, i)
		}
	}
	return places
}

// beLocked forgets what was found of another caller, or by other users and roles.
func (r *renewable) beLocked(a asker) {
	if r.by.Value() != a.By || r.who != a.Who || len(r.of) > maxRenewable {
		r.by, r.who, r.of = weak.Make(a.By), a.Who, make(map[lease.ID]lease.Token)
	}
}

// add remembers a lease.
func (r *renewable) add(a asker, id lease.ID, token lease.Token) {
	if r == nil || token == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by.Value() == a.By && r.who == a.Who {
		r.of[id] = token
	}
}

// unsure returns the places of those leases of a batch that the asker is not known to hold.
func (s *leases) unsure(
	ctx context.Context, known *renewable, b *batch,
) (places []int, err error) {
	a := s.asker(ctx)
	if err := a.known(); err != nil || a.all() {
		return nil, err
	}
	return known.unknown(a, b.asks.IDs, b.asks.Tokens), nil
}

// denied returns the places of those leases that the asker may not renew. Of the others it asks
// the core in one piece, without the leader if it can: what a request says with a token holds as
// long as the token does. The leader has the last word in any case, and knows tokens only.
func (s *leases) denied(
	ctx context.Context, known *renewable, r *pb.RenewRequest, b *batch,
) (out map[int]bool, err error) {
	places, err := s.unsure(ctx, known, b)
	if err != nil || len(places) == 0 {
		return nil, err
	}
	tokens := b.asks.Tokens
	found := make([]api.Held, len(places))
	for i, at := range places {
		found[i].ID = b.asks.IDs[at]
	}
	sure := tokens != nil
	if sure {
		err = api.Gather(found, func(f func(*lease.Lessor)) error {
			return s.node.InspectHere(ctx, func(l *lease.Lessor, _ uint64) { f(l) })
		})
	}
	for i, at := range places {
		// A member may not know yet what a client was told elsewhere.
		sure = sure && err == nil && tokens[at] != 0 && found[i].Token == tokens[at]
	}
	if err == nil && !sure {
		err = api.Gather(found, func(f func(*lease.Lessor)) error { return s.node.Inspect(ctx, f) })
	}
	if err != nil {
		return nil, err // and found may still be written
	}
	a := s.asker(ctx) // whose users and roles are as new as the leases, or newer
	if err := a.known(); err != nil {
		return nil, err
	}
	out = make(map[int]bool)
	for i, at := range places {
		f, name := &found[i], ""
		if len(r.Leases) > 0 {
			name = r.Leases[at].Name
		}
		switch {
		case a.renews(f, name) != nil:
			out[at] = true
		case f.Of != (access.Lease{}):
			known.add(a, f.ID, f.Token)
		}
	}
	return out, nil
}

// renews says why the asker may not renew a lease that it has named by a name, or with "" by its
// ID. One without a name that belongs to nobody it may renew as over etcd's API: otherwise any
// client could let the keys of others live. Whether a name is taken is told to callers that may see
// it.
func (a asker) renews(f *api.Held, name string) error {
	switch {
	case !f.Found && name != "":
		return a.looksFor(name)
	case !f.Found:
		return nil // the leader says that it is not there
	}
	return a.touches(access.Hold, *f)
}
