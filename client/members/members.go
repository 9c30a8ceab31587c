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

// ErrExists means that another live member of the group has the same ID.
var ErrExists = errors.New("members: the group already has a member with this ID")

// Group is a set of members. Each member is stored as the key NAME/ID, which is attached to the
// member's lease and exists as long as the lease. So any etcd client can list the group.
//
// Its methods are safe for concurrent use.
type Group struct {
	c      *client.Client
	prefix string // prefix of the members' keys
}

// New returns the group with the given name. It sends no request.
func New(c *client.Client, name string) *Group { return &Group{c, name + "/"} }

func (g *Group) check() error {
	return tries.CheckName("group", strings.TrimSuffix(g.prefix, "/"))
}

var _ client.Hold = (*Membership)(nil)

// Membership is a member registered by this program. Its methods are safe for concurrent use.
type Membership struct {
	g       *Group
	key     string
	session *client.Session
	ctx     context.Context // canceled when the session ends or Release is called
	cancel  context.CancelCauseFunc
	// guard is a key that is put if the member leaves while an attempt to register it may still be
	// in flight. See register.
	guard string

	// busy holds an element while Update or Release is running. It guards the fields below.
	busy     chan struct{}
	created  int64 // create revision of the key
	modified int64 // last known mod revision of the key
	unsure   bool  // the answer to a registration was lost
}

// Register makes the session a member of the group until Release is called or the session ends.
// metadata describes the member to the others, for example by its address. The ID must not contain
// a slash, and must be unique among the live members. If another session has the ID, Register waits
// until that member is gone. This happens, for instance, if the program has restarted and its old
// session still exists.
func (g *Group) Register(
	ctx context.Context, s *client.Session, id string, metadata []byte,
) (*Membership, error) {
	return g.add(ctx, s, id, metadata, true)
}

// TryRegister is like Register, but returns ErrExists immediately if another session has the ID.
func (g *Group) TryRegister(
	ctx context.Context, s *client.Session, id string, metadata []byte,
) (*Membership, error) {
	return g.add(ctx, s, id, metadata, false)
}

func (g *Group) add(
	ctx context.Context, s *client.Session, id string, metadata []byte, wait bool,
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
				_ = m.withdraw(ctx) // if this fails, the key is deleted with the session
			})
		}
		return nil, fault.In("members: register", m.key, tries.Outcome(m.unsure, err))
	}
	return m, nil
}

// register puts the key. The transaction does nothing if another session has the key, and fails if
// the lease has ended. So it can be repeated after a lost answer: if the key is attached to our
// lease, it is ours.
//
// An unanswered attempt may be applied much later, even after the member has left. So each attempt
// takes effect only if the guard key does not exist. If such an attempt may be in flight when the
// member leaves, the guard key is put in the same transaction that deletes the key.
//
// If the session ends, register returns promptly (T16).
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
			case len(kvs) == 0: // the other member has just left
			case kvs[0].Lease == m.lease().ID() && m.unsure:
				m.created, m.modified = kvs[0].CreateRevision, kvs[0].ModRevision
				return nil
			case !wait || kvs[0].Lease == m.lease().ID():
				return fmt.Errorf("%w: held by lease %016x%s",
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

// ownerOf returns the owner of a lease for use in an error message, or "" if it is unknown.
func (m *Membership) ownerOf(ctx context.Context, id lease.ID) string {
	info, _ := m.g.c.Describe(ctx, leases.Ref{ID: id}) // if this fails, the owner is empty
	if info.Owner == "" {
		return ""
	}
	return fmt.Sprintf(" of owner %q", info.Owner)
}

// awaitDeletion waits until the key is deleted.
func (m *Membership) awaitDeletion(ctx context.Context, revision int64) error {
	return tries.AwaitEvent(ctx, m.g.c,
		store.Watch{Key: m.key, From: revision + 1, NoPut: true}, tries.Gone)
}

// ours returns the conditions under which the key still belongs to this registration.
func (m *Membership) ours() []store.Compare {
	return []store.Compare{
		store.Key(m.key).CreateRevision(store.Equal, m.created),
		store.Key(m.key).Lease(store.Equal, m.lease().ID()),
	}
}

// ID returns the member's ID.
func (m *Membership) ID() string { return strings.TrimPrefix(m.key, m.g.prefix) }

// Token returns the session's fencing token.
func (m *Membership) Token() lease.Token { return m.lease().Token() }

// ValidUntil returns the time from which others may see the member as failed unless the lease is
// renewed first. It returns the zero time after Release.
func (m *Membership) ValidUntil() time.Time {
	if m.Err() != nil {
		return time.Time{}
	}
	return m.session.ValidUntil()
}

// Context returns a context that is canceled by Release, or before others can see the member as
// failed. Its cause is the reason.
func (m *Membership) Context() context.Context { return m.ctx }

// Err returns nil while the session is valid and Release has not been called. After that it returns
// the reason why the membership ended.
func (m *Membership) Err() error {
	if m.ctx.Err() != nil {
		return fault.Cause(m.ctx)
	}
	return m.session.Err()
}

// lock waits until no other Update or Release is running.
func (m *Membership) lock(ctx context.Context) error {
	select {
	case m.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fault.Cause(ctx)
	}
}

// Update changes the metadata. If it returns [client.ErrUnknownOutcome], the change may have been
// made, or may still be made later.
func (m *Membership) Update(ctx context.Context, metadata []byte) error {
	if err := m.lock(ctx); err != nil {
		return fault.In("members: update", m.key, err)
	}
	defer func() { <-m.busy }()
	if err := m.Err(); err != nil {
		return fault.In("members: update", m.key, err)
	}
	for p := (tries.Change{}); ; {
		// The condition includes the last known change. So at most one of several attempts takes
		// effect, and none can take effect after a later Update.
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
				return nil // changed by an attempt whose answer was lost
			}
			err = tries.Outcome(p.Unsure, p.Wait(ctx))
		}
		if err != nil {
			return fault.In("members: update", m.key, err)
		}
	}
}

// Release ends the membership. Others see that the member has left. If ctx ends before the cluster
// answers, Release continues in the background until the session would have expired. The client's
// Close waits for it.
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

// withdraw deletes the member's key if it exists. It is safe to repeat.
func (m *Membership) withdraw(ctx context.Context) error {
	ours, then := m.ours(), []store.Op{store.Delete{Key: m.key}}
	if m.created == 0 { // no attempt is known to have succeeded
		ours = ours[1:]
	}
	var otherwise []store.Op
	if m.unsure {
		guard := store.Put{Key: m.guard, Lease: m.lease().ID()}
		then, otherwise = append(then, guard), append(otherwise, guard)
	}
	_, err := m.g.c.Txn(ctx, store.Txn{If: ours, Then: then, Else: otherwise})
	if errors.Is(err, client.ErrLeaseNotFound) {
		return nil // no key can be attached to a lease that has ended
	}
	return err
}

// Member is a member of a group at some revision.
type Member struct {
	ID       string
	Metadata []byte
	// Lease is the lease that the member is attached to.
	Lease lease.ID
	// Joined and Changed are the revisions at which the member joined and last changed.
	Joined, Changed int64
}

// List returns the members, ordered by ID, and the revision of the list. The read is linearizable.
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

// member decodes a key of the group. A key with a further slash belongs to a different group, whose
// name starts with this group's name.
func (g *Group) member(kv *store.KV) (_ Member, ok bool) {
	id := strings.TrimPrefix(kv.Key, g.prefix)
	return Member{
		ID: id, Metadata: kv.Value, Lease: kv.Lease,
		Joined: kv.CreateRevision, Changed: kv.ModRevision,
	}, tries.ValidID(id)
}
