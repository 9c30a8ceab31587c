package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/background"
	"leasehold.dev/client/internal/tries"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
	"leasehold.dev/lease"
)

var (
	// ErrDown means that the node's lease has ended, or that the node does not exist.
	ErrDown = errors.New("nodes: the node is down")
	// ErrSwitched means that Set.Switch has ordered another primary.
	ErrSwitched = errors.New("nodes: another node is to be the primary")
)

// State is the state of a node.
type State int

// The states of a node.
const (
	// Alive means that the node's lease is valid and was renewed lately.
	Alive State = iota + 1
	// Suspect means that the lease lives but more than one renewal is late.
	Suspect
	// Down means that the lease has ended.
	Down
)

// String is the state for people.
func (s State) String() string {
	switch s {
	case Alive:
		return "alive"
	case Suspect:
		return "suspect"
	case Down:
		return "down"
	default:
		return fmt.Sprintf("unknown state %d", int(s))
	}
}

// Config describes a node that joins.
type Config struct {
	// ID is unique among the nodes. It must not contain a slash.
	ID string
	// Metadata is what others learn about the node, such as its address.
	Metadata []byte
	// TTL is the TTL of the node's lease, and of the role's lease while the node is the primary:
	// how long after a node's death another node can take over. 10 s if 0.
	TTL time.Duration
	// Grace is how long the node keeps trying to renew its lease after it stopped being valid;
	// State returns Suspect then. See [client.Grant].
	Grace time.Duration
	// Wait makes Join wait until the lease of an earlier incarnation of the same ID has ended.
	// Otherwise Join returns a [client.TakenError].
	Wait bool
}

var (
	_ client.Hold = (*Node)(nil)
	_ client.Hold = (*Primacy)(nil)
)

// Node is one of the nodes. The renewals of its lease are its heartbeats, and from the answers it
// knows whether it counts as alive. Its methods may be called from any goroutine.
type Node struct {
	s     *Set
	id    string
	ttl   time.Duration
	lease *client.Lease
}

// Join makes this program a node, until Release or until its lease ends. It never joins again by
// itself (T25).
func (s *Set) Join(ctx context.Context, cfg Config) (*Node, error) {
	if err := s.check(); err != nil {
		return nil, fault.In("nodes: join", cfg.ID, err)
	}
	if !tries.ValidID(cfg.ID) {
		return nil, fault.In("nodes: join", "",
			fmt.Errorf("%w: %q is no ID of a node", client.ErrInvalid, cfg.ID))
	}
	if cfg.TTL == 0 {
		cfg.TTL = tries.DefaultTTL
	}
	up := s.up(cfg.ID)
	for p := (tries.Backoff{}); ; {
		// The name and the key come into being and go with the lease, in one step, so that
		// there is nothing to be cleaned up wherever the process stops.
		l, err := s.c.Grant(ctx, client.Grant{
			TTL: cfg.TTL, Name: up, Owner: cfg.ID, Grace: cfg.Grace,
			Keys: []store.KV{{Key: up, Value: cfg.Metadata}},
		})
		if err == nil {
			return s.joined(ctx, &Node{s, cfg.ID, cfg.TTL, l}, cfg.Metadata)
		}
		if !cfg.Wait || !errors.Is(err, client.ErrNameTaken) {
			return nil, fault.In("nodes: join", up, err)
		}
		if err := s.awaitMissing(ctx, up); err != nil {
			return nil, fault.In("nodes: join", up, err)
		}
		if err := p.Wait(ctx); err != nil {
			return nil, fault.In("nodes: join", up, err)
		}
	}
}

// joined notes for the issuer that there is such a node. If the process stops before that the
// issuer knows the node as long as it is up, and forgets it then.
func (s *Set) joined(ctx context.Context, n *Node, metadata []byte) (*Node, error) {
	for p := (tries.Change{}); ; {
		_, err := s.c.Put(ctx, store.Put{Key: s.known(n.id), Value: metadata})
		if err == nil {
			return n, nil
		}
		if err := p.Again(ctx, err); err != nil {
			return nil, fault.In("nodes: join", n.id, fault.Join(err, n.Release(ctx)))
		}
	}
}

// ID returns the node's ID.
func (n *Node) ID() string { return n.id }

// Lease returns the node's lease.
func (n *Node) Lease() *client.Lease { return n.lease }

// State returns the node's own state: Alive; Suspect if its lease is no longer valid but may be
// saved (see Config.Grace); or Down, for ever.
func (n *Node) State() State {
	switch n.lease.State().Status {
	case client.OK:
		return Alive
	case client.Jeopardy:
		return Suspect
	default:
		return Down
	}
}

// Token returns the fencing token of the node's lease: a node that joins again has a higher one.
func (n *Node) Token() lease.Token { return n.lease.Token() }

// ValidUntil returns when the node counts as down, if no renewal succeeds before.
func (n *Node) ValidUntil() time.Time { return n.lease.ValidUntil() }

// Context returns a context that ends when the node's lease is no longer valid, before others may
// see the node as down. Its cause says why.
func (n *Node) Context() context.Context { return n.lease.Context() }

// Err returns nil as long as the node's lease is valid, and then why it is not. It reads the
// clock.
func (n *Node) Err() error { return n.lease.Err() }

// Release ends the node's lease, so that the node is down at once. If it has a [Primacy], that
// ends for the program, too, but the role stays taken until its own lease has ended: release the
// Primacy first.
func (n *Node) Release(ctx context.Context) error { return n.lease.Revoke(ctx) }

// Primacy is the role of the primary, held under a lease of its own. Two nodes never have a valid
// one at the same time (L4): a node gets the role only after the lease of the earlier holder has
// ended, and every holder stops before that. Its methods may be called from any goroutine.
type Primacy struct {
	n     *Node
	lease *client.Lease
	ctx   context.Context
}

// Primary waits until this node is the primary. It fails at once when the node's lease ends (T16,
// T17).
//
// The role has its own lease, not the node's, since fencing tokens must rise from one primary to
// the next, and the next node may have joined before this one.
func (n *Node) Primary(ctx context.Context) (*Primacy, error) {
	ctx, cancel := tries.Both(ctx, n.lease.Context())
	defer cancel()
	for p := (tries.Backoff{}); ; {
		l, err := n.tryPrimary(ctx)
		if l != nil {
			return n.primacy(l), nil
		}
		if err == nil {
			err = p.Wait(ctx)
		}
		if err != nil {
			if cause := n.lease.Err(); cause != nil {
				err = fault.Because(ErrDown, cause)
			}
			return nil, fault.In("nodes: primary", n.s.role(), err)
		}
	}
}

// primacy returns the role as this node holds it. When the node is down the lease of the role
// is not kept alive any more: a program that does not resign must not keep the role from
// the others for ever.
func (n *Node) primacy(l *client.Lease) *Primacy {
	ctx, cancel := tries.Both(l.Context(), n.lease.Context())
	context.AfterFunc(ctx, func() {
		l.Close()
		cancel()
	})
	return &Primacy{n, l, ctx}
}

// tryPrimary waits until the role seems to be free for this node, and tries to take it. It
// returns nil if it is to be called again.
func (n *Node) tryPrimary(ctx context.Context) (*client.Lease, error) {
	for {
		r, err := n.s.c.Txn(ctx, store.Txn{Then: []store.Op{
			store.Range{Key: n.s.role()}, store.Range{Key: n.s.order()},
		}})
		if err != nil {
			return nil, err
		}
		held, ordered := r.Results[0].Range.KVs, r.Results[1].Range.KVs
		other := len(ordered) > 0 && string(ordered[0].Value) != n.id
		if len(held) == 0 && !other {
			return n.take(ctx, len(ordered) > 0)
		}
		// An order goes away with the node it names, so this is never in vain.
		key := n.s.role()
		if len(held) == 0 {
			key = n.s.order()
		}
		err = tries.AwaitEvent(ctx, n.s.c,
			store.Watch{Key: key, From: r.Revision + 1}, tries.Anything)
		if err != nil {
			return nil, err
		}
	}
}

// take takes the role, if it is free. Everything is in one transaction: the lease, the name,
// the key, and the end of the order that was followed. It does nothing if this node is down
// when it is applied, if somebody has the role, or if somebody else is ordered to have it.
//
// If the answer is lost there may be a lease that nobody holds, now or later. It is
// revoked; if it comes only after that it ends after its TTL.
func (n *Node) take(ctx context.Context, ordered bool) (*client.Lease, error) {
	role, order, id := n.s.role(), n.s.order(), leases.NewID()
	chosen := store.Key(order).Missing()
	if ordered {
		chosen = store.Key(order).Value(store.Equal, []byte(n.id))
	}
	r, err := n.s.c.Txn(ctx, store.Txn{
		If: []store.Compare{store.LeaseAlive(n.lease.ID()), store.Key(role).Missing(), chosen},
		Then: []store.Op{
			client.Grant{ID: id, TTL: n.ttl, Name: role, Owner: n.id},
			store.Put{Key: role, Value: []byte(n.id), Lease: id},
			store.Delete{Key: order},
		},
	})
	switch {
	case errors.Is(err, client.ErrUnknownOutcome):
		return nil, tries.Outcome(true, n.forget(ctx, id))
	case errors.Is(err, client.ErrNameTaken): // by somebody who took the key away
		return nil, nil
	case !r.Succeeded: // nor with an error
		return nil, err
	}
	l, err := n.s.c.Keep(r.Results[0].Grant, -1)
	if err != nil { // the answer was so long on its way
		return nil, n.forget(ctx, id)
	}
	return l, nil
}

// forget revokes a lease that nobody holds, if there is one.
func (n *Node) forget(ctx context.Context, id lease.ID) error {
	err := background.Release(ctx, n.s.c, n.ttl, func(ctx context.Context) error {
		return n.s.c.Revoke(ctx, leases.Ref{ID: id})
	})
	if errors.Is(err, client.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// Context returns a context that is cancelled when this node must stop being the primary: before
// another node can be, and when this node is down. Its cause says why.
func (p *Primacy) Context() context.Context { return p.ctx }

// Err returns nil as long as this node is the primary, and then why it is not. It reads the
// clock, so it is right even if the process was stopped until just before.
func (p *Primacy) Err() error {
	if err := p.n.lease.Err(); err != nil {
		return err
	}
	return p.lease.Err()
}

// ValidUntil returns when this node must stop being the primary, if no renewal succeeds before:
// when its own lease or that of the role ends, whichever is first.
func (p *Primacy) ValidUntil() time.Time {
	role, node := p.lease.ValidUntil(), p.n.lease.ValidUntil()
	if node.Before(role) {
		return node
	}
	return role
}

// Token returns the fencing token of the role: every later primary has a higher one.
func (p *Primacy) Token() lease.Token { return p.lease.Token() }

// Lease returns the lease of the role.
func (p *Primacy) Lease() *client.Lease { return p.lease }

// Condition is the condition of a transaction that only this primary may do.
func (p *Primacy) Condition() store.Compare { return store.NameHeld(p.n.s.role(), p.Token()) }

// Release gives up the role. For this program the role ends at once, even if Release fails.
func (p *Primacy) Release(ctx context.Context) error {
	ctx, cancel := tries.Outside(ctx, tries.Within[Primacy]{Of: p}, p.n.ttl)
	defer cancel()
	return p.lease.Revoke(ctx)
}

// AwaitSwitch waits until Set.Switch orders another primary, and returns nil then; the primary
// should finish its work and resign. Otherwise it returns why it stopped waiting.
func (p *Primacy) AwaitSwitch(ctx context.Context) error {
	ctx, cancel := tries.Both(ctx, p.ctx)
	defer cancel()
	for {
		r, err := p.n.s.c.Range(ctx, store.Range{Key: p.n.s.order()})
		switch {
		case err != nil:
			return err
		case len(r.KVs) > 0 && string(r.KVs[0].Value) != p.n.id:
			return nil
		}
		err = tries.AwaitEvent(ctx, p.n.s.c,
			store.Watch{Key: p.n.s.order(), From: r.Revision + 1, NoDelete: true}, tries.Anything)
		if err != nil {
			return err
		}
	}
}

// Lead waits until this node is the primary, calls lead, and resigns when lead returns. The
// context of lead ends when the role ends, and when another primary is ordered; its cause is
// ErrSwitched then. Lead returns what lead returned.
func (n *Node) Lead(
	ctx context.Context, lead func(ctx context.Context, p *Primacy) error,
) error {
	p, err := n.Primary(ctx)
	if err != nil {
		return err
	}
	during, cancel := tries.Both(ctx, p.Context())
	defer cancel()
	inner, end := context.WithCancelCause(during)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		w := tries.Backoff{}
		err := p.AwaitSwitch(inner)
		for err != nil && w.Wait(inner) == nil { // a refusal must not make it deaf
			err = p.AwaitSwitch(inner)
		}
		end(fault.Canceled(ErrSwitched)) // or it has ended already
	}()
	defer func() { // also if lead panics
		end(context.Canceled)
		<-watched
		// The program's context may be what ended it, so the role is released with another.
		free, done := context.WithTimeout(context.WithoutCancel(ctx), background.Wait)
		defer done()
		if p.Err() != nil {
			done() // nothing is left to wait for
		}
		_ = p.Release(free) // if it fails, the role ends with its lease
	}()
	return lead(context.WithValue(inner, tries.Within[Primacy]{Of: p}, ctx), p)
}
