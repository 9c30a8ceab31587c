package pool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

var (
	// ErrNotFound means that there is no pool with this name.
	ErrNotFound = errors.New("pool: no such pool")
	// ErrExists means that a pool with this name exists, but has different IDs or a different
	// quarantine.
	ErrExists = errors.New("pool: already exists with different IDs or a different quarantine")
	// ErrNoneFree means that the requested ID is held, or that all IDs of the pool are held.
	ErrNoneFree = errors.New("pool: no free ID")
)

// Pool leases IDs or addresses from a fixed set, each to one holder at a time.
//
// The holder of the ID N holds the lease named POOL/held/N, and no two leases can have the same
// name (L4). A key with the same name is attached to the lease, so that other programs can watch
// for the ID to become free. POOL/was/N contains the last owner of N, and POOL/last/OWNER contains
// the last ID of OWNER. Both are only hints for choosing an ID.
//
// Its methods are safe for concurrent use.
type Pool struct {
	c          *client.Client
	prefix     string
	ids        []string
	known      map[string]bool // the same IDs as in ids
	quarantine time.Duration
}

// Create creates a pool, which exists until its keys are deleted. If the same pool already exists,
// Create opens it. If a different pool has the name, Create returns ErrExists.
func Create(ctx context.Context, c *client.Client, name string, s Spec) (*Pool, error) {
	p, err := newPool(c, name, s)
	if err != nil {
		return nil, fault.In("pool: create pool", name, err)
	}
	value, _ := json.Marshal(s) // cannot fail for strings and numbers
	for w := (tries.Change{}); ; {
		// Creating the pool twice is harmless.
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

// Open opens an existing pool.
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

// last returns the key that stores an owner's last ID.
func (p *Pool) last(owner string) string { return p.prefix + "last/" + owner }

// Size returns the number of IDs in the pool.
func (p *Pool) Size() int { return len(p.ids) }

// Request describes the ID to acquire.
type Request struct {
	// Owner identifies the program, for example by its host name. If an ID that the owner had
	// before is free, Acquire prefers it.
	Owner string
	// Want is the ID to lease. If it is empty, any ID is acceptable.
	Want string
	// TTL is the TTL of the lease, which is how long the ID stays held if the holder dies. 0 means
	// 10 s.
	TTL time.Duration
	// Grace is the lease's grace period. See [client.Grant].
	Grace time.Duration
	// Wait makes Acquire wait until an ID is free. Without it, Acquire returns ErrNoneFree.
	Wait bool
}

var _ client.Hold = (*Loan)(nil)

// Loan is an ID that this program holds while its lease is valid. Its methods are safe for
// concurrent use.
type Loan struct {
	p     *Pool
	id    string
	lease *client.Lease
}

// Acquire leases an ID. If r.Want is set, it leases that ID. Otherwise it prefers the ID that the
// owner last had, then an ID that has never been leased, and then the one that has been free the
// longest. In a pool of more than 50 IDs, Acquire chooses among 50 random ones instead of reading
// the whole pool.
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
		// Either other programs have taken all the candidates since, or none was free and none will
		// be soon.
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

// taken returns the error for a requested ID that is not free. If want is empty, no particular ID
// was requested. The error includes the holder if possible.
func (p *Pool) taken(ctx context.Context, want string) error {
	if want == "" {
		return ErrNoneFree
	}
	holder, err := p.c.Describe(ctx, leases.Ref{Name: p.held(want)})
	if err != nil {
		return ErrNoneFree // the holder has just released the ID, or ctx is done
	}
	if holder.Delayed {
		return fmt.Errorf("%w: %q was held by %q until lease %016x expired, and is in quarantine",
			ErrNoneFree, want, holder.Owner, holder.ID)
	}
	return fmt.Errorf("%w: lease %016x of %q holds %q", ErrNoneFree, holder.ID, holder.Owner, want)
}

// take leases one ID. It returns [client.ErrNameTaken] if the ID is held.
//
// The name and the key appear and disappear together with the lease. If the answer is lost, the
// client does not grant a second lease. The record of the last owner is written only afterwards. If
// the process stops before that, or the write fails, only the preference is lost.
func (p *Pool) take(ctx context.Context, id string, r *Request) (*Loan, error) {
	l, err := p.c.Grant(ctx, client.Grant{
		TTL: r.TTL, Name: p.held(id), Owner: r.Owner, Grace: r.Grace, LockDelay: p.quarantine,
		Keys: []store.KV{{Key: p.held(id), Value: []byte(r.Owner)}},
	})
	if err != nil {
		return nil, fault.In("pool: acquire", id, err)
	}
	loan := &Loan{p, id, l}
	notes := []store.Op{store.Put{Key: p.was(id), Value: []byte(r.Owner)}}
	if r.Owner != "" {
		notes = append(notes, store.Put{Key: p.last(r.Owner), Value: []byte(id)})
	}
	_, err = p.c.Txn(ctx, store.Txn{Then: notes})
	if err != nil && ctx.Err() != nil {
		_ = loan.Release(ctx)
		return nil, fault.In("pool: acquire", id, err)
	}
	return loan, nil
}

// wanted returns the range of keys that exist while the given ID is held. If id is empty, it
// returns the range of keys that exist while any ID is held.
func (p *Pool) wanted(id string) store.Range {
	r := store.Prefix(p.held("")).Range()
	if id != "" {
		r = store.Range{Key: p.held(id)}
	}
	r.KeysOnly = true
	return r
}

// sampleSize is the number of IDs that Acquire examines. It reads two keys for each ID and one for
// the owner in a single transaction, which is limited to 128 operations.
const sampleSize = 50

// free returns some free IDs, starting with the best one, and the revision at which they are free.
// It examines a random sample. If all IDs in the sample are held, it examines more.
func (p *Pool) free(ctx context.Context, r *Request) (ids []string, rev int64, err error) {
	if r.Want != "" { // this ID may be held, too
		kv, err := p.c.Range(ctx, p.wanted(r.Want))
		if err == nil && len(kv.KVs) == 0 {
			ids = []string{r.Want}
		}
		return ids, kv.Revision, err
	}
	sample := p.sample()
	ids, rev, err = p.look(ctx, sample, r.Owner)
	if err != nil || len(ids) > 0 || len(sample) == len(p.ids) {
		return ids, rev, err
	}
	return p.scan(ctx)
}

// sample returns up to sampleSize of the pool's IDs.
func (p *Pool) sample() []string {
	if len(p.ids) <= sampleSize {
		return p.ids
	}
	out := make(map[string]bool, sampleSize)
	for len(out) < sampleSize {
		out[p.ids[rand.IntN(len(p.ids))]] = true
	}
	return slices.Collect(maps.Keys(out))
}

// look returns the best of the given IDs, after the ID that the owner last had.
func (p *Pool) look(
	ctx context.Context, sample []string, owner string,
) (ids []string, rev int64, err error) {
	ops := []store.Op{store.Range{Key: p.last(owner)}}
	for _, id := range sample {
		ops = append(ops,
			store.Range{Key: p.held(id), KeysOnly: true}, store.Range{Key: p.was(id)})
	}
	r, err := p.c.Txn(ctx, store.Txn{Then: ops})
	if err != nil {
		return nil, 0, err
	}
	held, notes := make(map[string]bool), []store.KV(nil)
	for i, id := range sample {
		held[id] = len(r.Results[1+2*i].Range.KVs) > 0
		notes = append(notes, r.Results[2+2*i].Range.KVs...)
	}
	ids = p.best(sample, held, notes, owner)
	if kvs := r.Results[0].Range.KVs; len(kvs) > 0 {
		id := string(kvs[0].Value)
		// take detects whether the ID is held
		if p.known[id] && !held[id] && !slices.Contains(ids, id) {
			ids = slices.Insert(ids, 0, id)
		}
	}
	return ids, r.Revision, nil
}

// pageSize is the number of keys that scan reads at a time.
const pageSize = 1000

// scan returns some free IDs in a pool that is nearly full. It reads the keys of held IDs, starting
// at a random one, until some are missing.
func (p *Pool) scan(ctx context.Context) (ids []string, rev int64, err error) {
	all := store.Prefix(p.held("")).Range()
	all.CountOnly = true
	count, err := p.c.Range(ctx, all)
	if err != nil || count.Count == int64(len(p.ids)) {
		return nil, count.Revision, err
	}
	sorted := slices.Sorted(slices.Values(p.ids))
	start := rand.IntN(len(sorted))
	for _, part := range [][]string{sorted[start:], sorted[:start]} {
		for len(part) > 0 && len(ids) == 0 {
			r, err := p.c.Range(ctx, store.Range{
				Key: p.held(part[0]), End: all.End, Limit: pageSize, KeysOnly: true,
			})
			if err != nil {
				return nil, 0, err
			}
			held, n := make(map[string]bool, len(r.KVs)), len(part)
			for _, kv := range r.KVs {
				held[kv.Key] = true
			}
			if r.More {
				last := strings.TrimPrefix(r.KVs[len(r.KVs)-1].Key, p.held(""))
				n, _ = slices.BinarySearch(part, last+"\x00")
			}
			for _, id := range part[:n] {
				if !held[p.held(id)] {
					ids = append(ids, id)
				}
			}
			part = part[n:]
		}
	}
	shuffle(ids)
	return ids[:min(len(ids), handful)], count.Revision, nil
}

// handful is the number of IDs that Acquire tries in a row.
const handful = 8

// best returns up to a handful of IDs that are not held. Equally good IDs are shuffled, so that
// concurrent programs do not all try to get the same one.
func (p *Pool) best(
	ids []string, held map[string]bool, notes []store.KV, owner string,
) []string {
	last := make(map[string]*store.KV, len(notes))
	for i := range notes {
		last[strings.TrimPrefix(notes[i].Key, p.was(""))] = &notes[i]
	}
	var mine, fresh, used []string
	for _, id := range ids {
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

// ID returns the leased ID.
func (l *Loan) ID() string { return l.id }

// Lease returns the lease that holds the ID.
func (l *Loan) Lease() *client.Lease { return l.lease }

// Context returns a context that is canceled when the program must stop using the ID, before
// another program can get it.
func (l *Loan) Context() context.Context { return l.lease.Context() }

// Err returns nil while the program can use the ID. After that it returns the reason why the loan
// ended. It reads the clock.
func (l *Loan) Err() error { return l.lease.Err() }

// ValidUntil returns the time by which the program must stop using the ID unless the lease is
// renewed.
func (l *Loan) ValidUntil() time.Time { return l.lease.ValidUntil() }

// Token returns the fencing token. Each later holder of the ID has a larger one.
func (l *Loan) Token() lease.Token { return l.lease.Token() }

// Condition returns a condition for transactions that only the holder of the ID should be able to
// commit.
func (l *Loan) Condition() store.Compare { return store.NameHeld(l.p.held(l.id), l.Token()) }

// Release gives the ID back. For this program, the loan ends immediately, even if Release returns
// an error.
func (l *Loan) Release(ctx context.Context) error { return l.lease.Revoke(ctx) }

// Entry is an ID that is held or in quarantine.
type Entry struct {
	ID, Owner string
	Token     lease.Token
	// Remaining is a lower bound on the lease's remaining time.
	Remaining time.Duration
	// Quarantined reports whether the lease has expired and the ID cannot be leased yet.
	Quarantined bool
}

// List returns the IDs that are held or in quarantine, sorted. It reads each page linearizably.
func (p *Pool) List(ctx context.Context) ([]Entry, error) {
	var out []Entry
	for l, err := range p.c.List(ctx, leases.Filter{NamePrefix: p.held("")}) {
		if err != nil {
			return nil, fault.In("pool: list pool", p.prefix, err)
		}
		id := strings.TrimPrefix(l.Name, p.held(""))
		if !p.known[id] {
			continue // the lease belongs to another pool, whose name starts with this pool's name
		}
		out = append(out, Entry{
			ID: id, Owner: l.Owner, Token: l.Token,
			Remaining: l.Remaining, Quarantined: l.Delayed,
		})
	}
	return out, nil
}
