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

// renewable caches which leases a caller holds, by token. It lets a stream check each lease only
// once, and again after users or roles have changed. The cache stays correct when a lease changes
// hands, because the lease gets a new token. A nil renewable caches nothing. It is safe for
// concurrent use.
type renewable struct {
	mu sync.Mutex // guards the following fields
	// weak, so that an idle stream does not keep old users and roles in memory
	by  weak.Pointer[access.State]
	who access.Caller
	of  map[lease.ID]lease.Token
}

// maxRenewable limits the number of cached leases.
const maxRenewable = 1 << 17

// unknown returns the indexes of the leases that the caller is not yet known to hold.
func (r *renewable) unknown(a authorizer, ids []lease.ID, tokens []lease.Token) (places []int) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.setAuthorizerLocked(a)
	}
	for i, id := range ids {
		if r == nil || tokens == nil || tokens[i] == 0 || r.of[id] != tokens[i] {
			places = append(places, i)
		}
	}
	return places
}

// setAuthorizerLocked drops results that were computed for another caller or with other users and
// roles.
func (r *renewable) setAuthorizerLocked(a authorizer) {
	if r.by.Value() != a.State || r.who != a.Caller || len(r.of) > maxRenewable {
		r.by, r.who, r.of = weak.Make(a.State), a.Caller, make(map[lease.ID]lease.Token)
	}
}

// add caches a lease.
func (r *renewable) add(a authorizer, id lease.ID, token lease.Token) {
	if r == nil || token == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by.Value() == a.State && r.who == a.Caller {
		r.of[id] = token
	}
}

// unsure returns the indexes of the leases in a batch that the caller is not yet known to hold.
func (s *leases) unsure(
	ctx context.Context, known *renewable, b *batch,
) (places []int, err error) {
	a := s.authorizer(ctx)
	if err := a.checkLogin(); err != nil || a.seesAll() {
		return nil, err
	}
	return known.unknown(a, b.asks.IDs, b.asks.Tokens), nil
}

// denied returns the indexes of the leases that the caller may not renew. It queries the core once
// about the leases that the caller is not yet known to hold. This member's state is enough if it
// has the tokens that the caller sent, because a lease keeps its holder for as long as it keeps its
// token. The leader makes the final decision but only checks tokens.
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
		// A client may have received a newer token from another member.
		sure = sure && err == nil && tokens[at] != 0 && found[i].Token == tokens[at]
	}
	if err == nil && !sure {
		err = api.Gather(found, func(f func(*lease.Lessor)) error { return s.node.Inspect(ctx, f) })
	}
	if err != nil {
		return nil, err // the core may still be writing to found
	}
	a := s.authorizer(ctx) // its users and roles are at least as new as the leases
	if err := a.checkLogin(); err != nil {
		return nil, err
	}
	out = make(map[int]bool)
	for i, at := range places {
		f, name := &found[i], ""
		if len(r.Leases) > 0 {
			name = r.Leases[at].Name
		}
		switch {
		case a.checkRenew(f, name) != nil:
			out[at] = true
		case f.Of != (access.Lease{}):
			known.add(a, f.ID, f.Token)
		}
	}
	return out, nil
}

// checkRenew returns an error if the caller may not renew a lease. The caller referred to the lease
// by name, or by ID if name is "". A lease with neither a name nor a principal can be renewed under
// the same condition as in the etcd API. Otherwise, any client could keep other clients' keys
// alive. Only callers that may see a name learn whether it is taken.
func (a authorizer) checkRenew(f *api.Held, name string) error {
	switch {
	case !f.Found && name != "":
		return a.checkName(name)
	case !f.Found:
		return nil // the leader will return the error
	}
	return a.checkLease(access.Hold, *f)
}
