package members

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
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
	// ErrExists means that a live member of the group already has the ID.
	ErrExists = errors.New("members: the group has a member of this ID")
	// ErrNotMember means that the registration has ended: the member left, or its key was
	// deleted.
	ErrNotMember = errors.New("members: not a member any more")
)

// Group is a set of members. Each exists as long as its lease lives. A member is the key NAME/ID,
// attached to that lease, so that any etcd client can read the list, too.
//
// Its methods may be called from any goroutine.
type Group struct {
	c      *client.Client
	prefix string // of the keys of the members
}

// New returns the group of a name. It sends nothing.
func New(c *client.Client, name string) *Group { return &Group{c, name + "/"} }

func (g *Group) check() error {
	return tries.CheckName("group", strings.TrimSuffix(g.prefix, "/"))
}

// Registration describes a new member.
type Registration struct {
	// ID is unique among the live members of the group. It must not contain a slash.
	ID string
	// Metadata is what the others learn about the member, such as its address.
	Metadata []byte
	// TTL is the TTL of the member's lease: how long it is still listed after its death. 10 s if
	// 0.
	TTL time.Duration
	// Lease, if set, is a lease of the program for the member's key. Otherwise Register grants
	// one. The program renews and revokes its lease itself.
	Lease *client.Lease
	// Wait makes Register wait until an earlier member with the same ID has gone, such as the
	// previous incarnation of a restarted process. Otherwise Register returns ErrExists.
	Wait bool
}

var _ client.Hold = (*Membership)(nil)

// Membership is a member that this program registered. Its methods may be called from any
// goroutine.
type Membership struct {
	g     *Group
	key   string
	lease *client.Lease
	own   bool // the lease was granted for this member
	// guard is a key that is put when the member leaves, if a try to register it may still
	// be under way: see register.
	guard string

	// busy has an element while Update or Release runs; it guards what follows.
	busy     chan struct{}
	created  int64 // the revision that made the key
	modified int64 // the last that changed it, as far as is known
	unsure   bool  // an answer was lost while it was registered

	end sync.Mutex // guards what follows
	// over is not nil once the program has called Release.
	over error
	// ctx ends with that of the lease and with Release. It is nil until somebody asks.
	ofLease, ctx context.Context
	cancel       context.CancelCauseFunc
}

// Register makes this program a member of the group, until Release or until the member's lease
// ends. It is never registered again by itself (T25).
func (g *Group) Register(ctx context.Context, r Registration) (*Membership, error) {
	if err := g.check(); err != nil {
		return nil, fault.In("members: register", r.ID, err)
	}
	if !tries.ValidID(r.ID) {
		return nil, fault.In("members: register", "",
			fmt.Errorf("%w: %q is no ID of a member", client.ErrInvalid, r.ID))
	}
	m := &Membership{
		g: g, key: g.prefix + r.ID, lease: r.Lease,
		guard: strings.TrimSuffix(g.prefix, "/") + "!left/" + rand.Text(),
		busy:  make(chan struct{}, 1),
	}
	if m.lease == nil {
		if r.TTL == 0 {
			r.TTL = tries.DefaultTTL
		}
		// If the process stops after the grant, the lease ends after its TTL and nothing hangs
		// on it.
		l, err := g.c.Grant(ctx, client.Grant{TTL: r.TTL, Owner: r.ID})
		if err != nil {
			return nil, fault.In("members: register", m.key, err)
		}
		m.lease, m.own = l, true
	}
	if err := m.register(ctx, &r); err != nil {
		unsure := m.unsure
		if m.own {
			// Without a lease no try that is still under way does anything.
			kept := m.lease.Revoke(ctx)
			unsure = unsure && kept != nil
			err = fault.Join(err, kept)
		}
		return nil, fault.In("members: register", m.key, tries.Outcome(unsure, err))
	}
	return m, nil
}

// register puts the key. The transaction does nothing if somebody has the key, and the put
// fails if the lease has ended, so it may be tried again after a lost answer: the key is ours
// if it is attached to our lease.
//
// A try that got no answer may be done much later, even when the member has left and its
// lease lives on, as one that is shared does. Therefore each try has the condition that the
// member's guard is missing; Release puts it, together with the deletion, if there may be such
// a try.
//
// A program whose lease ends meanwhile is told at once (T16).
func (m *Membership) register(ctx context.Context, r *Registration) error {
	ctx, cancel := tries.Both(ctx, m.lease.Context())
	defer cancel()
	put := store.Txn{
		If:   []store.Compare{store.Key(m.key).Missing(), store.Key(m.guard).Missing()},
		Then: []store.Op{store.Put{Key: m.key, Value: r.Metadata, Lease: m.lease.ID()}},
		Else: []store.Op{store.Range{Key: m.key}},
	}
	for p := (tries.Backoff{}); ; {
		res, err := m.g.c.Txn(ctx, put)
		switch {
		case tries.Unsure(ctx, err):
			m.unsure = true
		case err != nil:
			return err
		case res.Succeeded:
			m.created, m.modified = res.Revision, res.Revision
			return nil
		default:
			kvs := res.Results[0].Range.KVs
			switch {
			case len(kvs) == 0: // it has gone meanwhile
			case kvs[0].Lease == m.lease.ID() && m.unsure:
				m.created, m.modified = kvs[0].CreateRevision, kvs[0].ModRevision
				return nil
			case !r.Wait:
				return fmt.Errorf("%w: lease %016x%s has it",
					ErrExists, kvs[0].Lease, m.ownerOf(ctx, kvs[0].Lease))
			default:
				if err := m.await(ctx, res.Revision); err != nil {
					return err
				}
			}
		}
		if err := p.Wait(ctx); err != nil {
			return err
		}
	}
}

// ownerOf tells whose a lease is, as far as that is known.
func (m *Membership) ownerOf(ctx context.Context, id lease.ID) string {
	info, _ := m.g.c.Describe(ctx, leases.Ref{ID: id}) // with an error there is no owner
	if info.Owner == "" {
		return ""
	}
	return fmt.Sprintf(" of owner %q", info.Owner)
}

// await waits until the key is gone.
func (m *Membership) await(ctx context.Context, revision int64) error {
	return tries.AwaitEvent(ctx, m.g.c,
		store.Watch{Key: m.key, From: revision + 1, NoPut: true}, tries.Gone)
}

// ours are the conditions that the key is still that of this registration.
func (m *Membership) ours() []store.Compare {
	return []store.Compare{
		store.Key(m.key).CreateRevision(store.Equal, m.created),
		store.Key(m.key).Lease(store.Equal, m.lease.ID()),
	}
}

// ID returns the member's ID.
func (m *Membership) ID() string { return strings.TrimPrefix(m.key, m.g.prefix) }

// Lease returns the lease of the member.
func (m *Membership) Lease() *client.Lease { return m.lease }

// Token returns the fencing token of the lease. A member that registers again with a new lease
// has a higher one.
func (m *Membership) Token() lease.Token { return m.lease.Token() }

// ValidUntil returns when the others may see that the member failed, if no renewal succeeds
// before; the zero time after Release.
func (m *Membership) ValidUntil() time.Time {
	if m.Err() != nil {
		return time.Time{}
	}
	return m.lease.ValidUntil()
}

// Context returns a context that ends before the other members may see that this one failed, and
// with Release. Its cause says why. See [client.Lease.Context].
func (m *Membership) Context() context.Context {
	m.end.Lock()
	defer m.end.Unlock()
	now := m.lease.Context()
	if m.ofLease != now { // the lease may have come back from jeopardy
		m.ofLease = now
		if m.over != nil { // it has ended with that, and not with the lease
			now = context.WithoutCancel(now)
		}
		m.ctx, m.cancel = context.WithCancelCause(now)
		if m.over != nil {
			m.cancel(m.over)
		}
	}
	return m.ctx
}

// Err returns nil as long as the lease is valid and the program has not called Release, and then
// why the program is not a member: ErrNotMember after Release.
func (m *Membership) Err() error {
	if err := m.isOver(); err != nil {
		return err
	}
	return m.lease.Err()
}

// isOver returns why the membership is over, if the program has given it up.
func (m *Membership) isOver() error {
	m.end.Lock()
	defer m.end.Unlock()
	return m.over
}

// giveUp ends the membership for the program.
func (m *Membership) giveUp() {
	m.end.Lock()
	defer m.end.Unlock()
	m.over = fault.Canceled(ErrNotMember)
	if m.cancel != nil {
		m.cancel(m.over)
	}
}

// begin waits until no other Update or Release runs.
func (m *Membership) begin(ctx context.Context) error {
	select {
	case m.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fault.Cause(ctx)
	}
}

// Update changes the metadata. After [client.ErrUnknownOutcome] the metadata may have changed, or
// may yet.
func (m *Membership) Update(ctx context.Context, metadata []byte) error {
	if err := m.begin(ctx); err != nil {
		return fault.In("members: update", m.key, err)
	}
	defer func() { <-m.busy }()
	if m.isOver() != nil {
		return fault.In("members: update", m.key, ErrNotMember)
	}
	for p := (tries.Change{}); ; {
		// The last change that is known is part of the condition, so of several tries
		// one is done, and none after a later Update.
		res, err := m.g.c.Txn(ctx, store.Txn{
			If: append(m.ours(), store.Key(m.key).ModRevision(store.Equal, m.modified)),
			Then: []store.Op{
				store.Put{Key: m.key, Value: metadata, Lease: m.lease.ID()},
			},
			Else: []store.Op{store.Range{Key: m.key}},
		})
		switch {
		case err != nil:
			err = p.Again(ctx, err)
		case res.Succeeded:
			m.modified = res.Revision
			return nil
		default:
			kvs := res.Results[0].Range.KVs
			if len(kvs) == 0 || kvs[0].CreateRevision != m.created || kvs[0].Lease != m.lease.ID() {
				return fault.In("members: update", m.key, ErrNotMember)
			}
			m.modified = kvs[0].ModRevision
			if string(kvs[0].Value) == string(metadata) {
				return nil // by a try whose answer was lost
			}
			err = tries.Outcome(p.Unsure, p.Wait(ctx))
		}
		if err != nil {
			return fault.In("members: update", m.key, err)
		}
	}
}

// Release ends the membership; the others see that the member left. If Register granted the
// lease, it ends for this program at once, even if Release fails. If the cluster cannot be
// reached, the others see that the member failed when the TTL has passed. If the context ends
// before the cluster answers, Release continues in the background while the lease would be valid;
// the client's Close waits for it.
func (m *Membership) Release(ctx context.Context) error {
	m.giveUp()
	left := time.Until(m.lease.ValidUntil())
	if m.own {
		m.lease.Close()
	}
	return background.Release(ctx, m.g.c, left, m.leave)
}

// leave deletes the member's key.
func (m *Membership) leave(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return fault.In("members: leave", m.key, err)
	}
	defer func() { <-m.busy }()
	then := []store.Op{store.Delete{Key: m.key}}
	if m.unsure {
		then = append(then, store.Put{Key: m.guard, Lease: m.lease.ID()})
	}
	for p := (tries.Change{}); ; {
		// Twice does no harm. If the condition does not hold the member is gone already.
		_, err := m.g.c.Txn(ctx, store.Txn{If: m.ours(), Then: then})
		if err == nil {
			break
		}
		if err := p.Again(ctx, err); err != nil {
			return fault.In("members: leave", m.key, err)
		}
	}
	if !m.own {
		return nil
	}
	// If the process stops here, a lease without keys ends after its TTL.
	return m.lease.Revoke(ctx)
}

// Member is a member of a group as of some revision.
type Member struct {
	ID       string
	Metadata []byte
	// Lease is the lease that the member hangs on.
	Lease lease.ID
	// Joined is the revision at which it joined, Changed the last one that changed its metadata.
	Joined, Changed int64
}

// List returns the members in the order of their IDs, linearizably, and the revision of that
// list.
func (g *Group) List(ctx context.Context) (list []Member, revision int64, err error) {
	if err := g.check(); err != nil {
		return nil, 0, fault.In("members: list", "", err)
	}
	kvs, revision, err := tries.ReadAll(ctx, g.c, store.Prefix(g.prefix).Range())
	if err != nil {
		return nil, 0, fault.In("members: list", g.prefix, err)
	}
	for i := range kvs {
		if m, ok := g.member(&kvs[i]); ok {
			list = append(list, m)
		}
	}
	return list, revision, nil
}

// member reads a key of the group. Keys with a slash belong to another, whose name begins
// with this one's.
func (g *Group) member(kv *store.KV) (_ Member, ok bool) {
	id := strings.TrimPrefix(kv.Key, g.prefix)
	return Member{
		ID: id, Metadata: kv.Value, Lease: kv.Lease,
		Joined: kv.CreateRevision, Changed: kv.ModRevision,
	}, tries.ValidID(id)
}
