package pool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

var (
	// ErrNotFound means that there is no pool of this name.
	ErrNotFound = errors.New("pool: no such pool")
	// ErrExists means that a pool of this name exists with other IDs or another quarantine.
	ErrExists = errors.New("pool: the pool exists, and is another")
	// ErrNoneFree means that all IDs of the pool are held, or the one that was wanted.
	ErrNoneFree = errors.New("pool: none is free")
)

// Pool leases the IDs or addresses of a set, each to one holder at a time.
//
// The holder of the ID N holds the lease with the name POOL/held/N, so that there is only one
// (L4), and the key of the same name, by which others see when the ID is free. POOL/was/N names
// the last owner; it is only a preference.
//
// Its methods may be called from any goroutine.
type Pool struct {
	c          *client.Client
	prefix     string
	ids        []string
	known      map[string]bool // of ids
	quarantine time.Duration
}

// Create makes a pool, which stays until its keys are deleted. If the same pool exists already,
// Create opens it; if another pool has the name, it returns ErrExists.
func Create(ctx context.Context, c *client.Client, name string, s Spec) (*Pool, error) {
	p, err := newPool(c, name, s)
	if err != nil {
		return nil, fault.In("pool: create pool", name, err)
	}
	value, _ := json.Marshal(s) // texts and numbers have no error
	for w := (tries.Change{}); ; {
		// Twice is as good as once.
		r, err := c.Txn(ctx, store.Txn{
			If:   []store.Compare{store.Key(p.spec()).Missing()},
			Then: []store.Op{store.Put{Key: p.spec(), Value: value}},
			Else: []store.Op{store.Range{Key: p.spec()}},
		})
		switch {
		case err != nil:
			err = w.Again(ctx, err)
		case r.Succeeded || string(r.Results[0].Range.KVs[0].Value) == string(value):
			return p, nil
		default:
			err = ErrExists
		}
		if err != nil {
			return nil, fault.In("pool: create pool", name, err)
		}
	}
}

// Open returns a pool that exists.
func Open(ctx context.Context, c *client.Client, name string) (*Pool, error) {
	if err := tries.CheckName("pool", name); err != nil {
		return nil, fault.In("pool: open pool", name, err)
	}
	kv, err := c.Get(ctx, name+"/"+specID)
	if errors.Is(err, client.ErrKeyNotFound) {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fault.In("pool: open pool", name, err)
	}
	var s Spec
	if err := json.Unmarshal(kv.Value, &s); err != nil {
		return nil, fault.In("pool: open pool", name, err)
	}
	p, err := newPool(c, name, s)
	if err != nil {
		return nil, fault.In("pool: open pool", name, err)
	}
	return p, nil
}

func newPool(c *client.Client, name string, s Spec) (*Pool, error) {
	if err := tries.CheckName("pool", name); err != nil {
		return nil, err
	}
	ids, err := s.all()
	if err != nil {
		return nil, err
	}
	p := &Pool{
		c: c, prefix: name + "/", ids: ids, known: make(map[string]bool, len(ids)),
		quarantine: s.Quarantine,
	}
	for _, id := range ids {
		p.known[id] = true
	}
	return p, nil
}

func (p *Pool) spec() string          { return p.prefix + specID }
func (p *Pool) held(id string) string { return p.prefix + "held/" + id }
func (p *Pool) was(id string) string  { return p.prefix + "was/" + id }

// Size returns how many IDs the pool has.
func (p *Pool) Size() int { return len(p.ids) }

// Request says what to acquire.
type Request struct {
	// Owner names the program, for instance by its host. It gets an ID that it had before, if one
	// is free.
	Owner string
	// Want is the ID to lease; empty for any.
	Want string
	// TTL is the TTL of the lease: how long the ID stays held after the holder's death. 10 s if
	// 0.
	TTL time.Duration
	// Grace is the grace of the lease: see [client.Grant].
	Grace time.Duration
	// Wait makes Acquire wait until an ID is free. Otherwise Acquire returns ErrNoneFree.
	Wait bool
}

var _ client.Hold = (*Loan)(nil)

// Loan is an ID that this program holds, as long as its lease is valid. Its methods may be
// called from any goroutine.
type Loan struct {
	p     *Pool
	id    string
	lease *client.Lease
}

// Acquire leases an ID: r.Want if set; otherwise a free one that the owner had before, or one
// that was never leased, or one that has been free the longest.
func (p *Pool) Acquire(ctx context.Context, r Request) (*Loan, error) {
	if r.TTL == 0 {
		r.TTL = tries.DefaultTTL
	}
	fail := func(err error) (*Loan, error) {
		return nil, fault.In("pool: acquire from", p.prefix, err)
	}
	if r.Want != "" && !p.known[r.Want] {
		return fail(fmt.Errorf("%w: %q is not in the pool", client.ErrInvalid, r.Want))
	}
	for w := (tries.Backoff{}); ; {
		free, revision, err := p.free(ctx, &r)
		if err != nil {
			return fail(err)
		}
		for _, id := range free {
			l, err := p.take(ctx, id, &r)
			if !errors.Is(err, client.ErrNameTaken) {
				return l, err
			}
		}
		// All were taken in the meantime; or none was free, which will not change by itself.
		if len(free) == 0 {
			if !r.Wait {
				return fail(p.taken(ctx, r.Want))
			}
			keys := p.wanted(r.Want)
			err := tries.AwaitEvent(ctx, p.c, store.Watch{
				Key: keys.Key, End: keys.End, From: revision + 1, NoPut: true,
			}, tries.Gone)
			if err != nil {
				return fail(err)
			}
		}
		if err := w.Wait(ctx); err != nil {
			return fail(err)
		}
	}
}

// taken is the error when the ID that is wanted, or any ID if that is empty, is not free. It
// names the holder, if that can be told.
func (p *Pool) taken(ctx context.Context, want string) error {
	if want == "" {
		return ErrNoneFree
	}
	holder, err := p.c.Describe(ctx, leases.Ref{Name: p.held(want)})
	if err != nil {
		return ErrNoneFree // it has gone meanwhile, or the caller gives up
	}
	if holder.Delayed {
		return fmt.Errorf("%w: %q was of %q until its lease %016x expired, and waits",
			ErrNoneFree, want, holder.Owner, holder.ID)
	}
	return fmt.Errorf("%w: lease %016x of %q has %q", ErrNoneFree, holder.ID, holder.Owner, want)
}

// take leases one ID, or fails with [client.ErrNameTaken].
//
// The name and the key come and go with the lease, in one step each, and the client sees to it
// that a grant whose answer was lost is one grant. The note of the ID's last owner is written
// afterwards. If the process stops before, or the note is lost, so is the preference.
func (p *Pool) take(ctx context.Context, id string, r *Request) (*Loan, error) {
	l, err := p.c.Grant(ctx, client.Grant{
		TTL: r.TTL, Name: p.held(id), Owner: r.Owner, Grace: r.Grace, LockDelay: p.quarantine,
		Keys: []store.KV{{Key: p.held(id), Value: []byte(r.Owner)}},
	})
	if err != nil {
		return nil, fault.In("pool: acquire", id, err)
	}
	loan := &Loan{p, id, l}
	_, err = p.c.Put(ctx, store.Put{Key: p.was(id), Value: []byte(r.Owner)})
	if err != nil && ctx.Err() != nil {
		_ = loan.Release(ctx)
		return nil, fault.In("pool: acquire", id, err)
	}
	return loan, nil
}

// wanted is the range of the keys that are there while what is wanted is held: one ID, or any if
// that is empty.
func (p *Pool) wanted(id string) store.Range {
	r := store.Prefix(p.held("")).Range()
	if id != "" {
		r = store.Range{Key: p.held(id)}
	}
	r.KeysOnly = true
	return r
}

// free returns some IDs that are free, the best first, as of a revision.
func (p *Pool) free(ctx context.Context, r *Request) (ids []string, rev int64, err error) {
	kvs, rev, err := tries.ReadAll(ctx, p.c, p.wanted(r.Want))
	if err != nil {
		return nil, 0, err
	}
	held := make(map[string]bool, len(kvs))
	for _, kv := range kvs {
		held[strings.TrimPrefix(kv.Key, p.held(""))] = true
	}
	switch {
	case r.Want == "": // there may be such a key, too
	case held[r.Want]:
		return nil, rev, nil
	default:
		return []string{r.Want}, rev, nil
	}
	notes, _, err := tries.ReadAll(ctx, p.c, store.Prefix(p.was("")).Range())
	if err != nil {
		return nil, 0, err
	}
	return p.best(held, notes, r.Owner), rev, nil
}

// best returns up to a handful of the IDs that are not held. Programs that ask at the same
// time should not all try for the same one, so among equally good ones the order is random.
func (p *Pool) best(held map[string]bool, notes []store.KV, owner string) []string {
	const handful = 8
	last := make(map[string]*store.KV, len(notes))
	for i := range notes {
		last[strings.TrimPrefix(notes[i].Key, p.was(""))] = &notes[i]
	}
	var mine, fresh, used []string
	for _, id := range p.ids {
		switch kv := last[id]; {
		case held[id]:
		case kv == nil:
			fresh = append(fresh, id)
		case owner != "" && string(kv.Value) == owner:
			mine = append(mine, id)
		default:
			used = append(used, id)
		}
	}
	shuffle(fresh)
	slices.SortFunc(used, func(a, b string) int {
		return cmp.Compare(last[a].ModRevision, last[b].ModRevision)
	})
	used = used[:min(len(used), handful)]
	shuffle(used)
	all := slices.Concat(mine, fresh, used)
	return all[:min(len(all), handful)]
}

func shuffle(ids []string) {
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
}

// ID returns the ID.
func (l *Loan) ID() string { return l.id }

// Lease returns the lease under which the ID is held.
func (l *Loan) Lease() *client.Lease { return l.lease }

// Context returns a context that is cancelled when the ID must not be used any more, before
// another program can have it.
func (l *Loan) Context() context.Context { return l.lease.Context() }

// Err returns nil as long as the ID may be used, and then why not. It reads the clock.
func (l *Loan) Err() error { return l.lease.Err() }

// ValidUntil returns when the ID must not be used any more, if no renewal succeeds before.
func (l *Loan) ValidUntil() time.Time { return l.lease.ValidUntil() }

// Token returns the fencing token: every later holder of the ID has a higher one.
func (l *Loan) Token() lease.Token { return l.lease.Token() }

// Condition is the condition of a transaction that only the holder of the ID may do.
func (l *Loan) Condition() store.Compare { return store.NameHeld(l.p.held(l.id), l.Token()) }

// Release gives the ID back. For this program the loan ends at once, even if Release fails.
func (l *Loan) Release(ctx context.Context) error { return l.lease.Revoke(ctx) }

// Entry is an ID that is held.
type Entry struct {
	ID, Owner string
	Token     lease.Token
	// Remaining is the time that the lease has left at least.
	Remaining time.Duration
	// Quarantined says that the lease has expired, and the ID cannot be leased for a while.
	Quarantined bool
}

// List returns the IDs that are held, in the order of their names, linearizably page by page.
func (p *Pool) List(ctx context.Context) ([]Entry, error) {
	var out []Entry
	for l, err := range p.c.List(ctx, leases.Filter{NamePrefix: p.held("")}) {
		if err != nil {
			return nil, fault.In("pool: list pool", p.prefix, err)
		}
		id := strings.TrimPrefix(l.Name, p.held(""))
		if !p.known[id] {
			continue // of a pool whose name begins like this
		}
		out = append(out, Entry{
			ID: id, Owner: l.Owner, Token: l.Token,
			Remaining: l.Remaining, Quarantined: l.Delayed,
		})
	}
	return out, nil
}
