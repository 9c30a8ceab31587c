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
	// ErrDown means that the node's lease has ended or that the node does not exist.
	ErrDown = errors.New("nodes: the node is down")
	// ErrSwitched means that Set.Switch has ordered a switch to another primary.
	ErrSwitched = errors.New("nodes: switching to another primary")
)

// State is the state of a node.
type State int

// The states of a node.
const (
	// Alive means that the node's lease is valid and has been renewed recently.
	Alive State = iota + 1
	// Suspect means that the lease has not ended, but more than one renewal is overdue.
	Suspect
	// Down means that the lease has ended.
	Down
)

// String returns the name of the state.
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

// Config describes a node that is about to join.
type Config struct {
	// ID identifies the node in the set. It must not contain a slash.
	ID string
	// Metadata describes the node, for example by its address. It is visible to other programs.
	Metadata []byte
	// TTL is the TTL of the node's lease. While the node is the primary, it is also the TTL of the
	// role's lease. If the node dies, another node must wait this long before it takes over. 0
	// means 10 s.
	TTL time.Duration
	// Grace is how long the node keeps trying to renew its lease after the lease stops being valid.
	// State returns Suspect during that time. See [client.Grant].
	Grace time.Duration
	// Wait makes Join wait until the lease of a previous incarnation with the same ID has ended.
	// Without it, Join returns a [client.TakenError].
	Wait bool
}

var (
	_ client.Hold = (*Node)(nil)
	_ client.Hold = (*Primacy)(nil)
)

// Node is this program as a member of a set of nodes. The renewals of its lease are its heartbeats,
// and their answers show whether it counts as alive. Its methods are safe for concurrent use.
type Node struct {
	s     *Set
	id    string
	ttl   time.Duration
	lease *client.Lease
}

// Join makes this program a node until Release is called or the node's lease ends. The node never
// rejoins automatically (T25).
func (s *Set) Join(ctx context.Context, cfg Config) (*Node, error) {
	if err := s.check(); err != nil {
		return nil, fault.In("nodes: join", cfg.ID, err)
	}
	if !tries.ValidID(cfg.ID) {
		return nil, fault.In("nodes: join", "",
			fmt.Errorf("%w: %q is not a valid node ID", client.ErrInvalid, cfg.ID))
	}
	if cfg.TTL == 0 {
		cfg.TTL = tries.DefaultTTL
	}
	up := s.up(cfg.ID)
	for p := (tries.Backoff{}); ; {
		// The name and the key appear and disappear together with the lease. So there is nothing to
		// clean up, no matter where the process stops.
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

// joined records that the node exists. If the process stops before the record is written, the node
// is listed only while it is up.
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

// State returns the node's state from the node's own point of view. The state is Alive while its
// lease is valid, Suspect if the lease can still be recovered (see Config.Grace), and otherwise
// Down, which is permanent.
func (n *Node) State() State {
	switch err := n.lease.Err(); {
	case err == nil:
		return Alive
	case errors.Is(err, client.ErrJeopardy):
		return Suspect
	default:
		return Down
	}
}

// Token returns the fencing token of the node's lease. A node that rejoins gets a larger one.
func (n *Node) Token() lease.Token { return n.lease.Token() }

// ValidUntil returns the time at which the node is considered down, unless it renews its lease.
func (n *Node) ValidUntil() time.Time { return n.lease.ValidUntil() }

// Context returns a context that is canceled when the node's lease stops being valid, which is
// before any other program can consider the node down. Its cause is the reason.
func (n *Node) Context() context.Context { return n.lease.Context() }

// Err returns nil while the node's lease is valid. After that it returns the reason why the lease
// ended. It reads the clock.
func (n *Node) Err() error { return n.lease.Err() }

// Release ends the node's lease, so that the node is down immediately. If the node has a [Primacy],
// the Primacy ends for this program as well. But the role stays taken until its own lease has
// ended, so release the Primacy first.
func (n *Node) Release(ctx context.Context) error { return n.lease.Revoke(ctx) }

// Primacy is the role of the primary, which has its own lease. Two nodes never have a valid Primacy
// at the same time (L4): a node gets the role only after the previous holder's lease has ended, and
// each holder stops before that. Its methods are safe for concurrent use.
type Primacy struct {
	n     *Node
	lease *client.Lease
	ctx   context.Context
}

// Primary waits until this node is the primary. It fails as soon as the node's lease ends (T16,
// T17).
//
// The role has its own lease because fencing tokens must increase from one primary to the next. The
// tokens of the nodes' own leases might not, because the next primary may have joined before the
// current one.
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

// primacy returns the role held by this node. Once the node is down, the role's lease is no longer
// renewed. Otherwise, a program that does not resign could keep the role forever.
func (n *Node) primacy(l *client.Lease) *Primacy {
	ctx, cancel := tries.Both(l.Context(), n.lease.Context())
	context.AfterFunc(ctx, func() {
		l.Close()
		cancel()
	})
	return &Primacy{n, l, ctx}
}

// tryPrimary waits until the role appears to be free for this node, and then tries to take it. If
// it returns nil, the caller should call it again.
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
		// This wait always ends, because an order is deleted when the lease of the node it names
		// ends.
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

// take takes the role if it is free. A single transaction grants the named lease, creates the key
// and deletes the order. It changes nothing if, by the time it is applied, this node is down, or
// another node holds the role or has been ordered to take it.
//
// If the answer is lost, the lease may exist without a holder, or may still be granted later. take
// revokes it. If it is granted after the revocation, it ends after its TTL.
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
	case errors.Is(err, client.ErrNameTaken): // the holder's key has been deleted
		return nil, nil
	case !r.Succeeded: // applies even if err != nil
		return nil, err
	}
	l, err := n.s.c.Keep(r.Results[0].Grant, -1)
	if err != nil { // the answer took too long
		return nil, n.forget(ctx, id)
	}
	return l, nil
}

// forget revokes a lease that has no holder, if the lease exists.
func (n *Node) forget(ctx context.Context, id lease.ID) error {
	err := background.Release(ctx, n.s.c, n.ttl, func(ctx context.Context) error {
		return n.s.c.Revoke(ctx, leases.Ref{ID: id})
	})
	if errors.Is(err, client.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// Context returns a context that is canceled when this node is down or must stop acting as the
// primary. That happens before another node can take over. Its cause is the reason.
func (p *Primacy) Context() context.Context { return p.ctx }

// Err returns nil while this node is the primary. After that it returns the reason why the role
// ended. It reads the clock, so its result is correct even if the process has just been resumed.
func (p *Primacy) Err() error {
	if err := p.n.lease.Err(); err != nil {
		return err
	}
	return p.lease.Err()
}

// ValidUntil returns the time by which this node must stop acting as the primary unless its leases
// are renewed. That is when the node's lease or the role's lease ends, whichever comes first.
func (p *Primacy) ValidUntil() time.Time {
	role, node := p.lease.ValidUntil(), p.n.lease.ValidUntil()
	if node.Before(role) {
		return node
	}
	return role
}

// Token returns the role's fencing token. Each later primary has a larger one.
func (p *Primacy) Token() lease.Token { return p.lease.Token() }

// Lease returns the role's lease.
func (p *Primacy) Lease() *client.Lease { return p.lease }

// Condition returns a condition for transactions that only this primary should be able to commit.
func (p *Primacy) Condition() store.Compare { return store.NameHeld(p.n.s.role(), p.Token()) }

// Release gives up the role. For this program, the role ends immediately, even if Release returns
// an error.
func (p *Primacy) Release(ctx context.Context) error {
	if outer, ok := ctx.Value(p).(context.Context); ok && ctx.Err() == nil {
		// ctx ends with the role, before the cluster has answered.
		end := time.Now().Add(p.n.ttl)
		if d, ok := ctx.Deadline(); ok && d.Before(end) {
			end = d
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(outer, end)
		defer cancel()
	}
	return p.lease.Revoke(ctx)
}

// AwaitSwitch waits until Set.Switch orders a switch to another primary, and then returns nil. The
// primary should then finish its work and resign. If AwaitSwitch stops waiting for any other
// reason, it returns that reason.
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

// Lead waits until this node is the primary, calls lead, and resigns when lead returns. It returns
// the result of lead. The context passed to lead is canceled when the role ends or when a switch to
// another primary is ordered. In the latter case, its cause is ErrSwitched.
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
		for err != nil && w.Wait(inner) == nil { // keep waiting for an order after errors
			err = p.AwaitSwitch(inner)
		}
		end(fault.Canceled(ErrSwitched)) // has no effect if inner has already ended
	}()
	defer func() { // runs even if lead panics
		end(context.Canceled)
		<-watched
		// ctx may have ended, so a different context is used to release the role.
		free, done := context.WithTimeout(context.WithoutCancel(ctx), background.Wait)
		defer done()
		if p.Err() != nil {
			done() // there is nothing to wait for
		}
		_ = p.Release(free) // if this fails, the role ends with its lease
	}()
	return lead(context.WithValue(inner, p, ctx), p) // Release needs ctx, which outlives the role
}
