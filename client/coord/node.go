package coord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/lease"
)

var (
	// ErrNodeDown means that the node's lease has ended, or that there is no such node.
	ErrNodeDown = errors.New("coord: the node is down")
	// ErrSwitched means that another node is to be the primary, on somebody's order.
	ErrSwitched = errors.New("coord: another node is to be the primary")
)

// NodeState says what is known of a node.
type NodeState int

// The states of a node.
const (
	// NodeAlive means that the node's lease is valid and was renewed lately.
	NodeAlive NodeState = iota + 1
	// NodeSuspect means that the lease lives, and that renewals stay away: more than one is
	// late already.
	NodeSuspect
	// NodeDown means that the lease has ended.
	NodeDown
)

// String is the state for people.
func (s NodeState) String() string {
	switch s {
	case NodeAlive:
		return "alive"
	case NodeSuspect:
		return "suspect"
	case NodeDown:
		return "down"
	default:
		return fmt.Sprintf("unknown state %d", int(s))
	}
}

// NodeConfig says who a node is.
type NodeConfig struct {
	// ID is unique among the nodes. It has no slash.
	ID string
	// Metadata is what the issuer and the others learn, such as the node's address.
	Metadata []byte
	// TTL is that of the node's lease, and of the role's when the node is the primary:
	// how long after a node's death another can take over. 10 s if 0.
	TTL time.Duration
	// Grace is for how long after its validity the node goes on asking for its lease; it is
	// suspect to itself then. See [client.Grant].
	Grace time.Duration
	// Wait waits until the lease of an earlier life of the same ID has ended. Otherwise
	// that is a [client.TakenError].
	Wait bool
}

// Node is one of the nodes: its heartbeats are the renewals of its lease, and the cluster's
// answers to them are what it knows of itself. Its methods may be called from any goroutine.
type Node struct {
	s     *Nodes
	id    string
	ttl   time.Duration
	lease *client.Lease
}

// Join makes this program a node, which is there until Leave, or until its lease ends: it never
// joins again by itself (T25).
func (s *Nodes) Join(ctx context.Context, cfg NodeConfig) (*Node, error) {
	if !validID(cfg.ID) {
		return nil, fmt.Errorf("coord: join: %w: %q is no ID of a node", client.ErrInvalid, cfg.ID)
	}
	if cfg.TTL == 0 {
		cfg.TTL = defaultTTL
	}
	up := s.up(cfg.ID)
	for p := (pace{}); ; {
		// The name and the key come into being and go with the lease, in one step, so that
		// there is nothing to be cleaned up wherever the process stops.
		l, err := s.c.Grant(ctx, client.Grant{
			TTL: cfg.TTL, Name: up, Owner: cfg.ID, Grace: cfg.Grace,
			Keys: []client.KV{{Key: up, Value: cfg.Metadata}},
		})
		if err == nil {
			return s.joined(ctx, &Node{s, cfg.ID, cfg.TTL, l}, cfg.Metadata)
		}
		if !cfg.Wait || !errors.Is(err, client.ErrNameTaken) {
			return nil, fmt.Errorf("coord: join %q: %w", up, err)
		}
		if err := s.awaitMissing(ctx, up); err != nil {
			return nil, fmt.Errorf("coord: join %q: %w", up, err)
		}
		if err := p.wait(ctx); err != nil {
			return nil, fmt.Errorf("coord: join %q: %w", up, err)
		}
	}
}

// joined notes for the issuer that there is such a node. If the process stops before that the
// issuer knows the node as long as it is up, and forgets it then.
func (s *Nodes) joined(ctx context.Context, n *Node, metadata []byte) (*Node, error) {
	for p := (pace{}); ; {
		_, err := s.c.Put(ctx, client.Put{Key: s.known(n.id), Value: metadata})
		if err == nil {
			return n, nil
		}
		if unsure(ctx, err) {
			err = p.wait(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("coord: join %q: %w", n.id, errors.Join(err, n.Leave(ctx)))
		}
	}
}

// ID returns the node's ID.
func (n *Node) ID() string { return n.id }

// Lease returns the node's lease.
func (n *Node) Lease() *client.Lease { return n.lease }

// Alive reports whether the node's lease is valid. If it says no the issuer may see the node
// as down now or soon; as long as it says yes nobody does. It reads the clock.
func (n *Node) Alive() bool { return n.lease.Err() == nil }

// State returns what the node knows of itself: alive; suspect, if its lease is past its validity
// and may be saved (see NodeConfig.Grace); or down, for ever.
func (n *Node) State() NodeState {
	switch n.lease.State().Status {
	case client.OK:
		return NodeAlive
	case client.Jeopardy:
		return NodeSuspect
	default:
		return NodeDown
	}
}

// Leave ends the node's lease, so that it is down at once. A [Primacy] of it is over for the
// program, too, and the role is free when that lease has ended: call Resign before.
func (n *Node) Leave(ctx context.Context) error { return n.lease.Revoke(ctx) }

// Primacy is the role of the primary, held under a lease of its own. At no time do two nodes
// see a valid one (L4): the role is given away only after the lease before has ended, and
// every holder stops before that. Its methods may be called from any goroutine.
type Primacy struct {
	n      *Node
	lease  *client.Lease
	ctx    context.Context
	cancel context.CancelFunc
}

// Primary waits until this node is the primary. It fails when the node's lease ends, and
// is never late to tell so (T16, T17).
//
// The role has a lease of its own, and not the node's, since fencing tokens must rise from one
// primary to the next: the next node may have joined before this one.
func (n *Node) Primary(ctx context.Context) (*Primacy, error) {
	ctx, cancel := both(ctx, n.lease.Context())
	defer cancel()
	for p := (pace{}); ; {
		l, err := n.tryPrimary(ctx)
		switch {
		case err != nil:
			if cause := n.lease.Err(); cause != nil {
				err = fmt.Errorf("%w: %w", ErrNodeDown, cause)
			}
			return nil, fmt.Errorf("coord: primary %q: %w", n.s.role(), err)
		case l != nil:
			return n.primacy(l), nil
		}
		if err := p.wait(ctx); err != nil {
			return nil, fmt.Errorf("coord: primary %q: %w", n.s.role(), err)
		}
	}
}

// primacy returns the role as this node holds it. When the node is down the lease of the role
// is not kept alive any more: a program that does not resign must not keep the role from
// the others for ever.
func (n *Node) primacy(l *client.Lease) *Primacy {
	p := &Primacy{n: n, lease: l}
	ctx, cancel := both(l.Context(), n.lease.Context())
	stop := context.AfterFunc(n.lease.Context(), l.Close)
	p.ctx, p.cancel = ctx, func() {
		stop()
		cancel()
	}
	return p
}

// tryPrimary waits until the role seems to be free for this node, and tries to take it. It
// returns nil if it is to be called again.
func (n *Node) tryPrimary(ctx context.Context) (*client.Lease, error) {
	for {
		r, err := n.s.c.Txn(ctx, client.Txn{Then: []client.Op{
			client.Range{Key: n.s.role()}, client.Range{Key: n.s.order()},
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
		err = awaitEvent(ctx, n.s.c, client.Watch{Key: key, From: r.Revision + 1}, anything)
		if err != nil {
			return nil, err
		}
	}
}

func anything(*client.Event) bool { return true }

// take takes the role, if it is free. Everything is in one transaction: the lease, the name,
// the key, and the end of the order that was followed. It does nothing if this node is down
// when it is applied, if somebody has the role, or if somebody else is ordered to have it.
//
// If the answer is lost there may be a lease that nobody holds, now or later. It is
// revoked; if it comes only after that it ends after its TTL.
func (n *Node) take(ctx context.Context, ordered bool) (*client.Lease, error) {
	role, order, id := n.s.role(), n.s.order(), client.NewLeaseID()
	chosen := client.Missing(order)
	if ordered {
		chosen = client.CompareValue(order, client.Equal, []byte(n.id))
	}
	r, err := n.s.c.Txn(ctx, client.Txn{
		If: []client.Compare{client.LeaseAlive(n.lease.ID()), client.Missing(role), chosen},
		Then: []client.Op{
			client.Grant{ID: id, TTL: n.ttl, Name: role, Owner: n.id},
			client.Put{Key: role, Value: []byte(n.id), Lease: id},
			client.Delete{Key: order},
		},
	})
	switch {
	case unsure(ctx, err):
		return nil, n.s.forget(ctx, id)
	case errors.Is(err, client.ErrNameTaken): // by somebody who took the key away
		return nil, nil
	case err != nil || !r.Succeeded:
		return nil, err
	}
	l, err := n.s.c.Keep(r.Results[0].Grant, -1)
	if errors.Is(err, client.ErrExpired) { // the answer was so long on its way
		return nil, n.s.forget(ctx, id)
	}
	return l, err
}

// forget revokes a lease that nobody holds, if there is one.
func (s *Nodes) forget(ctx context.Context, id lease.ID) error {
	err := s.c.Revoke(ctx, client.LeaseRef{ID: id})
	if errors.Is(err, client.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// Context returns a context that is cancelled when this node must not be the primary any more:
// before another can be, and when the node itself is down. Its cause says why.
func (p *Primacy) Context() context.Context { return p.ctx }

// Err returns nil as long as this node is the primary, and then why it is not. It reads the
// clock, so it is right even if the process was stopped until just before.
func (p *Primacy) Err() error {
	if err := p.lease.Err(); err != nil {
		return err
	}
	return p.n.lease.Err()
}

// Token returns the fencing token of the role: every later primary has a higher one.
func (p *Primacy) Token() lease.Token { return p.lease.Token() }

// Lease returns the lease of the role.
func (p *Primacy) Lease() *client.Lease { return p.lease }

// Owner is the condition of a transaction that only this primary may do.
func (p *Primacy) Owner() client.Compare { return client.NameHeld(p.n.s.role(), p.Token()) }

// Resign gives the role away. For this program it is over at once, whatever the error is.
func (p *Primacy) Resign(ctx context.Context) error {
	ctx, cancel := outside(ctx, within[Primacy]{p}, p.n.ttl)
	defer cancel()
	p.cancel()
	return p.lease.Revoke(ctx)
}

// AwaitSwitch waits until another node is ordered to be the primary, by Nodes.Switch, and
// returns nil then; the primary should finish what it does and resign. Or it returns why it
// does not wait any longer.
func (p *Primacy) AwaitSwitch(ctx context.Context) error {
	ctx, cancel := both(ctx, p.ctx)
	defer cancel()
	for {
		r, err := p.n.s.c.Range(ctx, client.Range{Key: p.n.s.order()})
		switch {
		case err != nil:
			return err
		case len(r.KVs) > 0 && string(r.KVs[0].Value) != p.n.id:
			return nil
		}
		err = awaitEvent(ctx, p.n.s.c,
			client.Watch{Key: p.n.s.order(), From: r.Revision + 1, NoDelete: true}, anything)
		if err != nil {
			return err
		}
	}
}

// Lead waits until this node is the primary, calls lead, and resigns when it returns. The
// context of lead ends when the role does, and when another node is ordered to be the
// primary; its cause is ErrSwitched then. Lead returns what lead did.
func (n *Node) Lead(
	ctx context.Context, lead func(ctx context.Context, p *Primacy) error,
) (err error) {
	p, err := n.Primary(ctx)
	if err != nil {
		return err
	}
	during, cancel := both(ctx, p.Context())
	defer cancel()
	inner, end := context.WithCancelCause(during)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if p.AwaitSwitch(inner) == nil {
			end(ErrSwitched)
		}
	}()
	defer func() { // also if lead panics
		end(context.Canceled)
		<-watched
		// The program's context may be what ended it. The role is given back in any case, as
		// long as its lease would live anyway.
		free, done := context.WithTimeout(context.WithoutCancel(ctx), n.ttl)
		defer done()
		err = errors.Join(err, p.Resign(free))
	}()
	return lead(context.WithValue(inner, within[Primacy]{p}, ctx), p)
}
