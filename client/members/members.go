package members

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/background"
	"leasehold.dev/client/internal/tries"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
	"leasehold.dev/lease"
)

// ErrExists means that a live member of the group already has the ID.
var ErrExists = errors.New("members: the group has a member of this ID")

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

var _ client.Hold = (*Membership)(nil)

// Membership is a member that this program registered. Its methods may be called from any
// goroutine.
type Membership struct {
	g       *Group
	key     string
	session *client.Live
	ctx     context.Context // ends with the session and with Release
	cancel  context.CancelCauseFunc
	// guard is a key that is put when the member leaves, if a try to register it may still
	// be in flight: see register.
	guard string

	// busy has an element while Update or Release runs; it guards what follows.
	busy     chan struct{}
	created  int64 // the revision that made the key
	modified int64 // the last that changed it, as far as is known
	unsure   bool  // an answer was lost while it was registered
}

// Register makes the session a member of the group, until Release or until the session ends.
// Metadata is what the others learn about the member, such as its address. The ID must be unique
// among the live members, and not contain a slash. If another session has the ID, for instance the
// one that this program had before it was restarted, Register waits until that has gone.
func (g *Group) Register(
	ctx context.Context, s *client.Live, id string, metadata []byte,
) (*Membership, error) {
	return g.add(ctx, s, id, metadata, true)
}

// TryRegister is like Register, but returns ErrExists at once if another session has the ID.
func (g *Group) TryRegister(
	ctx context.Context, s *client.Live, id string, metadata []byte,
) (*Membership, error) {
	return g.add(ctx, s, id, metadata, false)
}

func (g *Group) add(
	ctx context.Context, s *client.Live, id string, metadata []byte, wait bool,
) (*Membership, error) {
	if err := g.check(); err != nil {
		return nil, fault.In("members: register", id, err)
	}
	if !tries.ValidID(id) {
		return nil, fault.In("members: register", "",
			fmt.Errorf("%w: %q is not a valid member ID", client.ErrInvalid, id))
	}
	m := &Membership{
		g: g, key: g.prefix + id, session: s,
		guard: strings.TrimSuffix(g.prefix, "/") + "!left/" + rand.Text(),
		busy:  make(chan struct{}, 1),
	}
	m.ctx, m.cancel = context.WithCancelCause(s.Context())
	if err := m.register(ctx, metadata, wait); err != nil {
		m.cancel(err)
		if m.unsure {
			background.Start(g.c, func(ctx context.Context) {
				ctx, cancel := context.WithTimeout(ctx, s.Lease().Info().TTL)
				defer cancel()
				_ = m.withdraw(ctx) // the key ends with the session anyway
			})
		}
		return nil, fault.In("members: register", m.key, tries.Outcome(m.unsure, err))
	}
	return m, nil
}

// register puts the key. The transaction does nothing if another session has the key, and the put
// fails if the lease has ended, so it may be repeated after a lost answer: the key is ours if it is
// attached to our lease.
//
// A try that got no answer may be applied much later, even when the member has left. Therefore
// each try has the condition that the member's guard is missing; leaving puts the guard, together
// with the deletion, if there may be such a try.
//
// If the session ends meanwhile, register returns at once (T16).
func (m *Membership) register(ctx context.Context, metadata []byte, wait bool) error {
	ctx, cancel := tries.Both(ctx, m.ctx)
	defer cancel()
	put := store.Txn{
		If:   []store.Compare{store.Key(m.key).Missing(), store.Key(m.guard).Missing()},
		Then: []store.Op{store.Put{Key: m.key, Value: metadata, Lease: m.lease().ID()}},
		Else: []store.Op{store.Range{Key: m.key}},
	}
	for p := (tries.Backoff{}); ; {
		res, err := m.g.c.Txn(ctx, put)
		switch {
		case tries.Unsure(ctx, err):
			m.unsure = true
		case err != nil:
			m.unsure = m.unsure || errors.Is(err, client.ErrUnknownOutcome)
			return err
		case res.Succeeded:
			m.created, m.modified = res.Revision, res.Revision
			return nil
		default:
			kvs := res.Results[0].Range.KVs
			switch {
			case len(kvs) == 0: // it has gone meanwhile
			case kvs[0].Lease == m.lease().ID() && m.unsure:
				m.created, m.modified = kvs[0].CreateRevision, kvs[0].ModRevision
				return nil
			case !wait || kvs[0].Lease == m.lease().ID():
				return fmt.Errorf("%w: lease %016x%s has it",
					ErrExists, kvs[0].Lease, m.ownerOf(ctx, kvs[0].Lease))
			default:
				if err := m.awaitDeletion(ctx, res.Revision); err != nil {
					return err
				}
			}
		}
		if err := p.Wait(ctx); err != nil {
			return err
		}
	}
}

func (m *Membership) lease() *client.Lease { return m.session.Lease() }

// ownerOf returns the owner of a lease, as part of a message, if the cluster says it.
func (m *Membership) ownerOf(ctx context.Context, id lease.ID) string {
	info, _ := m.g.c.Describe(ctx, leases.Ref{ID: id}) // with an error there is no owner
	if info.Owner == "" {
		return ""
	}
	return fmt.Sprintf(" of owner %q", info.Owner)
}

// awaitDeletion waits until the key is gone.
func (m *Membership) awaitDeletion(ctx context.Context, revision int64) error {
	return tries.AwaitEvent(ctx, m.g.c,
		store.Watch{Key: m.key, From: revision + 1, NoPut: true}, tries.Gone)
}

// ours are the conditions that the key is still that of this registration.
func (m *Membership) ours() []store.Compare {
	return []store.Compare{
		store.Key(m.key).CreateRevision(store.Equal, m.created),
		store.Key(m.key).Lease(store.Equal, m.lease().ID()),
	}
}

// ID returns the member's ID.
func (m *Membership) ID() string { return strings.TrimPrefix(m.key, m.g.prefix) }

// Token returns the fencing token of the session.
func (m *Membership) Token() lease.Token { return m.lease().Token() }

// ValidUntil returns when the others may see that the member failed, if no renewal succeeds
// before; the zero time after Release.
func (m *Membership) ValidUntil() time.Time {
	if m.Err() != nil {
		return time.Time{}
	}
	return m.session.ValidUntil()
}

// Context returns a context that ends before the other members may see that this one failed, and
// with Release. Its cause says why.
func (m *Membership) Context() context.Context { return m.ctx }

// Err returns nil as long as the session is valid and the program has not called Release, and then
// why the program is not a member.
func (m *Membership) Err() error {
	if m.ctx.Err() != nil {
		return fault.Cause(m.ctx)
	}
	return m.session.Err()
}

// lock waits until no other Update or Release runs.
func (m *Membership) lock(ctx context.Context) error {
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
	if err := m.lock(ctx); err != nil {
		return fault.In("members: update", m.key, err)
	}
	defer func() { <-m.busy }()
	if err := m.Err(); err != nil {
		return fault.In("members: update", m.key, err)
	}
	for p := (tries.Change{}); ; {
		// The last change that is known is part of the condition, so of several tries
		// one is done, and none after a later Update.
		res, err := m.g.c.Txn(ctx, store.Txn{
			If: append(m.ours(), store.Key(m.key).ModRevision(store.Equal, m.modified)),
			Then: []store.Op{
				store.Put{Key: m.key, Value: metadata, Lease: m.lease().ID()},
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
			if len(kvs) == 0 || kvs[0].CreateRevision != m.created || kvs[0].Lease != m.lease().ID() {
				return fault.In("members: update", m.key, client.ErrLost)
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

// Release ends the membership; the others see that the member left. If the context ends before the
// cluster answers, Release continues in the background while the session would be valid; the
// client's Close waits for it.
func (m *Membership) Release(ctx context.Context) error {
	m.cancel(fault.Canceled(client.ErrReleased))
	left := time.Until(m.session.ValidUntil())
	return background.Release(ctx, m.g.c, left, m.leave)
}

// leave deletes the member's key.
func (m *Membership) leave(ctx context.Context) error {
	if err := m.lock(ctx); err != nil {
		return fault.In("members: leave", m.key, err)
	}
	defer func() { <-m.busy }()
	for p := (tries.Change{}); ; {
		err := m.withdraw(ctx)
		if err == nil {
			return nil
		}
		if err := p.Again(ctx, err); err != nil {
			return fault.In("members: leave", m.key, err)
		}
	}
}

// withdraw deletes the member's key, if it is there. It may be repeated.
func (m *Membership) withdraw(ctx context.Context) error {
	ours, then := m.ours(), []store.Op{store.Delete{Key: m.key}}
	if m.created == 0 { // no try was seen to succeed
		ours = ours[1:]
	}
	var otherwise []store.Op
	if m.unsure {
		guard := store.Put{Key: m.guard, Lease: m.lease().ID()}
		then, otherwise = append(then, guard), append(otherwise, guard)
	}
	_, err := m.g.c.Txn(ctx, store.Txn{If: ours, Then: then, Else: otherwise})
	if errors.Is(err, client.ErrLeaseNotFound) {
		return nil // nothing can be attached to it any more
	}
	return err
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
