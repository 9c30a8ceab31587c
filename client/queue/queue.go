package queue

import (
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/tries"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
)

// MaxBatch is the maximum number of items that one call can push, requeue or discard.
const MaxBatch = 50

// Config configures a Queue. Only workers need it.
type Config struct {
	// TTL is the TTL of the claims' leases. After a worker dies, its items become claimable again
	// within this time. 0 means 10 s.
	TTL time.Duration
	// MaxTries is the number of times an item can be claimed before it becomes a dead letter. The
	// first claim by a worker that sets MaxTries stores the number with the queue. Workers that set
	// a different number get [client.ErrInvalid]. To change it, delete the key NAME/max-tries. 0
	// means the stored number, or 20 if no number is stored.
	MaxTries int64
	// MaxTime limits how long the client keeps a claim alive. If a worker hangs, its item becomes
	// claimable one TTL later. 0 means no limit.
	MaxTime time.Duration
	// Worker is the name of this worker, as shown in lists of claims.
	Worker string
}

// defaultMaxTries applies to a queue that has no stored MaxTries.
const defaultMaxTries = 20

// Queue is a work queue. Each claim of an item has a lease; when the lease ends, the item can be
// claimed again.
//
// An item with the ID O is stored as the key NAME/item/O, from Push to Ack. While the key
// NAME/claim/O exists, the item is claimed or delayed. That key is attached to the lease of the
// claim or, for a delayed item, to a lease that is not renewed and ends with the delay. So no
// program has to return items to the queue, and only the cluster's clock counts. Each claim writes
// NAME/try/O; that key's version is the number of times the item has been claimed. Dead letters are
// stored as NAME/dead/O. NAME/max-tries stores Config.MaxTries if a worker has set it.
//
// O starts with the store's revision at the time of the call to Push. So if one Push returns before
// another is called, its items come first. This way, there is no counter that every Push would have
// to write.
//
// Its methods are safe for concurrent use.
type Queue struct {
	c      *client.Client
	prefix string
	cfg    Config
	// competitors estimates how many other workers are competing for items, up to maxCompetitors.
	// It increases with each lost race, and decreases more slowly with each race won.
	competitors atomic.Int32
	// lostRaces counts lost races.
	lostRaces atomic.Int64
	// stored is the MaxTries that is known to be stored with the queue, or 0.
	stored atomic.Int64
}

// New returns the queue with the given name. It sends no request.
func New(c *client.Client, name string, cfg Config) *Queue {
	if cfg.TTL <= 0 {
		cfg.TTL = tries.DefaultTTL
	}
	cfg.MaxTries = max(cfg.MaxTries, 0)
	return &Queue{c: c, prefix: name + "/", cfg: cfg}
}

func (q *Queue) item(id string) string  { return q.prefix + "item/" + id }
func (q *Queue) claim(id string) string { return q.prefix + "claim/" + id }
func (q *Queue) try(id string) string   { return q.prefix + "try/" + id }
func (q *Queue) dead(id string) string  { return q.prefix + "dead/" + id }
func (q *Queue) maxTries() string       { return q.prefix + "max-tries" }

// IDs start with a digit, because the revision at their start is padded with zeros to 12 hex
// digits. Only keys with such IDs count, so "q" and "q/item" can be the names of different queues.
// "q/item/0" cannot be a name, because its keys would be among the keys of "q".
const (
	firstID  = "0"
	afterIDs = ":"
)

var within = regexp.MustCompile(`^(.+)/(?:item|claim|try|dead)/[0-9]`)

func (q *Queue) check() error {
	name := strings.TrimSuffix(q.prefix, "/")
	if m := within.FindStringSubmatch(name); m != nil {
		return fmt.Errorf("%w: the keys of queue %q would fall within those of queue %q; "+
			"choose another name", client.ErrInvalid, name, m[1])
	}
	return tries.CheckName("queue", name)
}

// from returns the range of the keys of a kind, starting with the given ID.
func from(id string, kind func(id string) string) store.Range {
	return store.Range{Key: kind(max(id, firstID)), End: kind(afterIDs)}
}

// idOf returns the ID in a key of the given kind. It returns false for keys of other kinds or of
// other queues; the rest of such a key contains a slash.
func idOf(key string, kind func(id string) string) (id string, ok bool) {
	id = strings.TrimPrefix(key, kind(""))
	return id, tries.ValidID(id)
}

// newIDs returns IDs that sort after the IDs of all items pushed so far.
func (q *Queue) newIDs(ctx context.Context, n int) ([]string, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	r, err := q.c.Range(ctx, store.Range{Key: q.item(""), KeysOnly: true})
	if err != nil {
		return nil, err
	}
	ids := make([]string, n)
	unique := strings.ToLower(rand.Text()[:10])
	for i := range ids {
		ids[i] = fmt.Sprintf("%012x-%02d-%s", r.Revision, i, unique)
	}
	return ids, nil
}

// limit is the number of claims after which an item becomes a dead letter.
type limit struct {
	tries int64
	is    store.Compare // the condition that the queue still has this limit
	set   []store.Op    // operations that store the limit; empty if that is not needed
}

// limit returns the limit as far as it is known.
func (q *Queue) limit() limit {
	if tries := q.stored.Load(); tries != 0 {
		return q.storedLimit(tries)
	}
	missing := store.Key(q.maxTries()).Missing()
	if q.cfg.MaxTries == 0 {
		return limit{tries: defaultMaxTries, is: missing}
	}
	put := store.Put{Key: q.maxTries(), Value: strconv.AppendInt(nil, q.cfg.MaxTries, 10)}
	return limit{tries: q.cfg.MaxTries, is: missing, set: []store.Op{put}}
}

func (q *Queue) storedLimit(tries int64) limit {
	is := store.Key(q.maxTries()).Value(store.Equal, strconv.AppendInt(nil, tries, 10))
	return limit{tries: tries, is: is}
}

// readLimit records the stored limit, given the result of reading its key. It reports whether the
// limit has changed. It returns an error if this worker has set a different limit.
func (q *Queue) readLimit(kvs []store.KV) (changed bool, err error) {
	var tries int64
	if len(kvs) > 0 {
		tries, err = strconv.ParseInt(string(kvs[0].Value), 10, 64)
		if most := q.cfg.MaxTries; err != nil || tries < 1 || most != 0 && most != tries {
			return false, fmt.Errorf("%w: the queue allows %q tries per item, but this worker "+
				"allows %d (key %q)", client.ErrInvalid, kvs[0].Value, most, kvs[0].Key)
		}
	}
	return q.stored.Swap(tries) != tries, nil
}

// largePayload is the size above which an item may come close to the maximum request size.
const largePayload = 1 << 10

// fillerKey returns the key of a condition that always holds. The condition pads push requests to
// make them longer than the requests that later return an item or turn it into a dead letter. So
// every item that can be pushed can also become a dead letter, whatever limit the members set on
// request size. Otherwise, such an item would block every worker that claims it.
func (q *Queue) fillerKey() string {
	const keys, rest = 7, 320
	return strings.Repeat("~", keys*len(q.item(""))+rest)
}

// minDelay is the shortest delay. It equals the shortest TTL that members grant by default.
const minDelay = 100 * time.Millisecond

// Push adds an item and returns its ID. The item cannot be claimed until the delay has passed. A
// nonzero delay is at least 100 ms, and may be longer than requested if the leader changes.
func (q *Queue) Push(ctx context.Context, payload []byte, delay time.Duration) (string, error) {
	ids, err := q.PushAll(ctx, [][]byte{payload}, delay)
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// PushAll adds up to MaxBatch items in order. Either all of them are added or none.
//
// After a lost answer, the client does not push the items twice. If the cluster has dropped the
// client's session in the meantime, PushAll pushes the items again with the same IDs. That has no
// effect if one of them still exists. If all of them have been processed in the meantime, it adds
// them a second time. After [client.ErrUnknownOutcome], the items may be in the queue, or may be
// added later.
func (q *Queue) PushAll(
	ctx context.Context, payloads [][]byte, delay time.Duration,
) ([]string, error) {
	if len(payloads) == 0 || len(payloads) > MaxBatch {
		return nil, fault.In("queue: push to", q.prefix,
			fmt.Errorf("%w: %d items in one call; push 1 to %d at a time",
				client.ErrInvalid, len(payloads), MaxBatch))
	}
	ids, err := q.newIDs(ctx, len(payloads))
	if err != nil {
		return nil, fault.In("queue: push to", q.prefix, err)
	}
	// The items are added together but removed individually. So if one exists, all were pushed.
	var t store.Txn
	wait := leases.NewID()
	if delay > 0 {
		t.Then = append(t.Then, client.Grant{ID: wait, TTL: max(delay, minDelay)})
	}
	if slices.ContainsFunc(payloads, func(b []byte) bool { return len(b) >= largePayload }) {
		t.If = append(t.If, store.Key(q.item(ids[0])+q.fillerKey()).Missing())
	}
	for i, id := range ids {
		t.If = append(t.If, store.Key(q.item(id)).Missing(), store.Key(q.dead(id)).Missing())
		t.Then = append(t.Then, store.Put{Key: q.item(id), Value: payloads[i]})
		if delay > 0 {
			t.Then = append(t.Then, store.Put{Key: q.claim(id), Lease: wait})
		}
	}
	for p := (tries.Change{}); ; {
		_, err := q.c.Txn(ctx, t)
		if err == nil {
			return ids, nil
		}
		if err := p.Again(ctx, err); err != nil {
			return nil, fault.In("queue: push to", q.prefix, err)
		}
	}
}
