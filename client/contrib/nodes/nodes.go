package nodes

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/tries"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
	"leasehold.dev/lease"
)

// Set is a group of nodes, at most one of which is the primary. A node is up while its lease
// NAME/up/ID exists. The primary is the node that holds the lease NAME/primary. Only these leases
// count, never a node's clock.
//
// Its methods are safe for concurrent use.
type Set struct {
	c      *client.Client
	prefix string
}

// New returns the set of nodes with the given name. It sends no request.
func New(c *client.Client, name string) *Set { return &Set{c, name + "/"} }

// check rejects a name if the keys of its role and its order could be the keys of nodes in another
// set.
func (s *Set) check() error {
	name := strings.TrimSuffix(s.prefix, "/")
	for _, kind := range []string{"/up", "/known"} {
		if other, ok := strings.CutSuffix(name, kind); ok {
			return fmt.Errorf("%w: the keys of node set %q would fall within those of %q; "+
				"choose another name", client.ErrInvalid, name, other)
		}
	}
	return tries.CheckName("set of nodes", name)
}

func (s *Set) up(id string) string    { return s.prefix + "up/" + id }
func (s *Set) known(id string) string { return s.prefix + "known/" + id }
func (s *Set) role() string           { return s.prefix + "primary" }

// order returns the key that stores which node should become the primary. The key is attached to
// that node's lease.
func (s *Set) order() string { return s.prefix + "order" }

// Info is what the cluster knows about a node.
type Info struct {
	ID       string
	State    State
	Metadata []byte
	// Token is the token of the node's lease, or 0 if the node is down. A node that rejoins gets a
	// different token.
	Token lease.Token
	// TTL is the TTL of the node's lease. Remaining is a lower bound on the remaining time of that
	// lease. Both are 0 if the node is down.
	TTL, Remaining time.Duration
}

// View is what the cluster knows about all nodes.
type View struct {
	// Nodes contains the nodes that are up, and nodes that are down but have not been removed with
	// Forget. They are sorted by ID.
	Nodes []Info
	// Primary is the ID of the primary, or empty if there is none. Token is the role's token.
	Primary string
	Token   lease.Token
}

// List returns the current view. It reads the keys of the nodes and then the leases, both
// linearizably. If a node joins between the two reads, List still returns its earlier state: either
// Down or not listed. A node is Suspect when less than half of its TTL remains; a healthy node
// renews while two thirds remain. A new leader treats all leases as just renewed.
func (s *Set) List(ctx context.Context) (View, error) {
	if err := s.check(); err != nil {
		return View{}, fault.In("nodes: list", "", err)
	}
	kvs, _, err := tries.ReadAll(ctx, s.c, store.Prefix(s.prefix).Range())
	if err != nil {
		return View{}, fault.In("nodes: list", s.prefix, err)
	}
	nodes, up := make(map[string]*Info), make(map[lease.ID]*Info)
	for _, kv := range kvs { // the keys of nodes that are up come last
		if id, ok := idOf(kv.Key, s.known); ok {
			nodes[id] = &Info{ID: id, State: Down, Metadata: kv.Value}
		}
		if id, ok := idOf(kv.Key, s.up); ok {
			nodes[id] = &Info{ID: id, State: Down, Metadata: kv.Value}
			up[kv.Lease] = nodes[id]
		}
	}
	var v View
	for l, err := range s.c.List(ctx, leases.Filter{NamePrefix: s.prefix}) {
		if err != nil {
			return View{}, fault.In("nodes: list", s.prefix, err)
		}
		if l.Name == s.role() {
			v.Primary, v.Token = l.Owner, l.Token
		}
		if n := up[l.ID]; n != nil {
			n.State, n.Token, n.TTL, n.Remaining = Alive, l.Token, l.TTL, l.Remaining
			if l.Remaining < l.TTL/2 {
				n.State = Suspect
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		v.Nodes = append(v.Nodes, *nodes[id])
	}
	return v, nil
}

// idOf returns the ID of the node that a key of the given kind belongs to. It returns false for
// other keys. Those include the keys of a set whose name merely starts with this set's name: what
// would be the ID contains a slash.
func idOf(key string, kind func(id string) string) (id string, ok bool) {
	id = strings.TrimPrefix(key, kind(""))
	return id, tries.ValidID(id)
}

// Node returns the state of the node with the given ID. If the view does not list the node, it is
// Down.
func (v *View) Node(id string) Info {
	for _, n := range v.Nodes {
		if n.ID == id {
			return n
		}
	}
	return Info{ID: id, State: Down}
}

// same reports whether two views are equal, ignoring the remaining time of leases.
func (v *View) same(w *View) bool {
	return v.Primary == w.Primary && v.Token == w.Token &&
		slices.EqualFunc(v.Nodes, w.Nodes, func(a, b Info) bool {
			return a.ID == b.ID && a.State == b.State && a.Token == b.Token &&
				a.TTL == b.TTL && string(a.Metadata) == string(b.Metadata)
		})
}

// Forget removes a node from the list if it is down. A node that is up stays listed.
func (s *Set) Forget(ctx context.Context, id string) error {
	err := s.check()
	if err == nil {
		_, err = s.c.Delete(ctx, store.Delete{Key: s.known(id)})
	}
	return fault.In("nodes: forget", id, err)
}

// Switch makes a node the primary. It stores an order and waits until the node is the primary. The
// current primary resigns when it receives the order (see Node.Lead). If the primary is dead or
// ignores the order, Switch waits until its lease has ended, so there are never two primaries. No
// other node takes the role in the meantime.
//
// If the node goes down, Switch returns ErrDown, and the order is canceled. If ctx ends, the order
// stays in effect.
func (s *Set) Switch(ctx context.Context, id string) error {
	for p := (tries.Change{}); ; {
		done, err := s.orderSwitch(ctx, id)
		switch {
		case done:
			return nil
		case err == nil:
			err = tries.Outcome(p.Unsure, p.Wait(ctx))
		case !errors.Is(err, ErrDown): // if the node is down, no order remains
			err = p.Again(ctx, err)
		}
		if err != nil {
			return fault.In(fmt.Sprintf("nodes: switch %q to", s.role()), id, err)
		}
	}
}

// orderSwitch stores the order. If the order is already stored, it waits for a change. It can be
// repeated at any time, because the order stays the same.
func (s *Set) orderSwitch(ctx context.Context, id string) (done bool, err error) {
	if err := s.check(); err != nil {
		return false, err
	}
	r, err := s.c.Txn(ctx, store.Txn{Then: []store.Op{
		store.Range{Key: s.up(id)}, store.Range{Key: s.role()}, store.Range{Key: s.order()},
	}})
	if err != nil {
		return false, err
	}
	up, held := r.Results[0].Range.KVs, r.Results[1].Range.KVs
	ordered := r.Results[2].Range.KVs
	switch {
	case len(held) > 0 && string(held[0].Value) == id:
		return true, nil
	case len(up) == 0:
		return false, ErrDown
	case len(ordered) == 0 || string(ordered[0].Value) != id:
		// The order is attached to the node's lease, so it ends with the node. It is not stored
		// once the node is the primary, because it would be pointless.
		_, err := s.c.Txn(ctx, store.Txn{
			If: []store.Compare{
				store.Key(s.up(id)).Lease(store.Equal, up[0].Lease),
				compareHolder(s.role(), held),
			},
			Then: []store.Op{
				store.Put{Key: s.order(), Value: []byte(id), Lease: up[0].Lease},
			},
		})
		return false, err
	}
	return false, tries.AwaitEvent(ctx, s.c, store.Watch{
		Key: s.prefix, End: store.Prefix(s.prefix).End, From: r.Revision + 1,
	}, func(e *store.Event) bool {
		return e.KV.Key == s.role() || e.KV.Key == s.up(id) || e.KV.Key == s.order() && !e.Delete
	})
}

// compareHolder returns the condition that the role's holder has not changed since it was read.
func compareHolder(role string, held []store.KV) store.Compare {
	if len(held) == 0 {
		return store.Key(role).Missing()
	}
	return store.Key(role).Lease(store.Equal, held[0].Lease)
}

// awaitMissing waits until a key no longer exists.
func (s *Set) awaitMissing(ctx context.Context, key string) error {
	r, err := s.c.Range(ctx, store.Range{Key: key, KeysOnly: true})
	if len(r.KVs) == 0 { // applies even after an error
		return err
	}
	return tries.AwaitEvent(ctx, s.c,
		store.Watch{Key: key, From: r.Revision + 1, NoPut: true}, tries.Gone)
}

// Watch reports changes in the states of nodes. Next must not be called concurrently.
type Watch struct {
	s     *Set
	last  View
	begun bool
}

// Watch starts watching the nodes. The views may skip changes: if a node left and came back between
// two views, its larger token is the only sign of that. A program that must see every change should
// use package members.
func (s *Set) Watch() *Watch { return &Watch{s: s} }

// Next returns the first view immediately. After that it waits for a view that differs from the
// previous one. It reads the state whenever a node or the primary appears or disappears, and also a
// few times per TTL to detect suspect nodes.
func (w *Watch) Next(ctx context.Context) (View, error) {
	for {
		v, err := w.s.List(ctx)
		if err != nil {
			return View{}, err
		}
		if !w.begun || !v.same(&w.last) {
			w.last, w.begun = v, true
			return v, nil
		}
		if err := w.wait(ctx); err != nil {
			return View{}, fault.In("nodes: watch", w.s.prefix, err)
		}
	}
}

// Views yields the results of Next until it fails. The error is yielded last.
func (w *Watch) Views(ctx context.Context) iter.Seq2[View, error] {
	return func(yield func(View, error) bool) {
		for {
			v, err := w.Next(ctx)
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// errLook is the cause of a wait that timed out.
var errLook = errors.New("nodes: poll interval elapsed")

// pause returns the shortest wait between two reads of the state, a fraction of the shortest TTL.
func (v *View) pause() time.Duration {
	every := tries.DefaultTTL
	for _, n := range v.Nodes {
		if n.State != Down {
			every = min(every, n.TTL)
		}
	}
	return max(every/12, 20*time.Millisecond)
}

// wait waits until there may be a new state.
func (w *Watch) wait(ctx context.Context) error {
	every := w.last.pause()
	short, cancel := context.WithTimeoutCause(ctx, every+rand.N(every), errLook)
	defer cancel()
	// Changes that happen before the watch starts are detected after the timeout.
	err := tries.AwaitEvent(short, w.s.c, store.Prefix(w.s.prefix).Watch(), tries.Anything)
	if context.Cause(short) == errLook { //nolint:errorlint // ours, and never wrapped
		return nil
	}
	return err
}
