package queue

import (
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/tries"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
)

// MaxBatch is how many items one call may push, requeue or discard.
const MaxBatch = 50

// Config configures a Queue. All programs that use a queue should have the same settings.
type Config struct {
	// TTL is the TTL of the claims' leases: how long after a worker's death its items become
	// claimable again. 10 s if 0.
	TTL time.Duration
	// MaxTries is how often an item is claimed before it goes to the dead letters; 20 if 0.
	MaxTries int64
	// MaxTime is how long the client keeps a claim alive at most. The item of a worker that hangs
	// becomes claimable a TTL later. 0 means as long as the program lives.
	MaxTime time.Duration
	// Worker names this worker in lists of claims.
	Worker string
}

// Queue is a work queue. Each claim of an item has a lease; when the lease ends, the item can be
// claimed again.
//
// An item with the ID O is the key NAME/item/O, from Push to Ack. While the key NAME/claim/O
// exists, the item is claimed or delayed. That key is on the lease of the claim, or on a lease
// that is not renewed and ends with the delay. So no program has to bring items back, and only
// the cluster's clock counts. Each claim puts NAME/try/O: its version is how often the item was
// claimed. Dead letters are NAME/dead/O.
//
// O begins with a revision that the store had when Push was called. So if one Push returned
// before another began, its item comes first, without a counter that every Push would have to
// write.
//
// Its methods may be called from any goroutine.
type Queue struct {
	c      *client.Client
	prefix string
	cfg    Config
	// crowd rises with each race for an item that was lost, and falls slower with each that was
	// won: how many others there seem to be. At most maxCrowd.
	crowd atomic.Int32
	// lost counts the races that were lost.
	lost atomic.Int64
}

// New returns the queue of a name. It sends nothing.
func New(c *client.Client, name string, cfg Config) *Queue {
	if cfg.TTL <= 0 {
		cfg.TTL = tries.DefaultTTL
	}
	if cfg.MaxTries <= 0 {
		cfg.MaxTries = 20
	}
	return &Queue{c: c, prefix: name + "/", cfg: cfg}
}

func (q *Queue) item(id string) string  { return q.prefix + "item/" + id }
func (q *Queue) claim(id string) string { return q.prefix + "claim/" + id }
func (q *Queue) try(id string) string   { return q.prefix + "try/" + id }
func (q *Queue) dead(id string) string  { return q.prefix + "dead/" + id }

// IDs begin with digits, as revisions do for as long as anybody lives. Only those keys count, so
// that "q/item" can be the name of another queue than "q". That of "q/item/0" cannot: its keys lie
// among those of "q".
const (
	firstID  = "0"
	afterIDs = ":"
)

var within = regexp.MustCompile(`^(.+)/(?:item|claim|try|dead)/[0-9]`)

func (q *Queue) check() error {
	name := strings.TrimSuffix(q.prefix, "/")
	if m := within.FindStringSubmatch(name); m != nil {
		return fmt.Errorf("%w: the keys of queue %q would be among those of queue %q; "+
			"choose another name", client.ErrInvalid, name, m[1])
	}
	return tries.CheckName("queue", name)
}

// from returns the range of the keys of one kind whose IDs are not before one.
func from(id string, kind func(id string) string) store.Range {
	return store.Range{Key: kind(max(id, firstID)), End: kind(afterIDs)}
}

// idOf returns the ID of which a key of one kind is; false if it is one of another kind, or
// another queue's. What is left of that has a slash.
func idOf(key string, kind func(id string) string) (id string, ok bool) {
	id = strings.TrimPrefix(key, kind(""))
	return id, tries.ValidID(id)
}

// newIDs returns IDs that come after those of all items that are pushed already.
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

// largePayload is the size from which on an item might come near to what a request may have.
const largePayload = 1 << 10

// room is what makes the request that pushes items longer than the one that makes one of them a
// dead letter or gives it back, as the key of a condition that always holds. So what could be
// pushed can become a dead letter, whatever the largest request is that members take. Otherwise an
// item that cannot become one would stop each worker that meets it.
func (q *Queue) room() string {
	const keys, rest = 5, 256
	return strings.Repeat("~", keys*len(q.item(""))+rest)
}

// minDelay is the shortest delay: the shortest TTL that members grant by default.
const minDelay = 100 * time.Millisecond

// Push adds an item and returns its ID. The item cannot be claimed before the delay has passed. A
// delay other than 0 is at least 100 ms, and may take longer than asked for if the leader
// changes.
func (q *Queue) Push(ctx context.Context, payload []byte, delay time.Duration) (string, error) {
	ids, err := q.PushAll(ctx, [][]byte{payload}, delay)
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// PushAll adds up to MaxBatch items, in order: all of them or none.
//
// After a lost answer the client does not push twice. If the cluster has forgotten the client
// meanwhile, PushAll pushes the items again with the same IDs. That does nothing if one of them
// still exists, but adds them a second time if all were done by then. After
// [client.ErrUnknownOutcome] the items may be in the queue, or may yet be.
func (q *Queue) PushAll(
	ctx context.Context, payloads [][]byte, delay time.Duration,
) ([]string, error) {
	if len(payloads) == 0 || len(payloads) > MaxBatch {
		return nil, fault.In("queue: push to", q.prefix,
			fmt.Errorf("%w: %d items in one call, 1 to %d may be",
				client.ErrInvalid, len(payloads), MaxBatch))
	}
	ids, err := q.newIDs(ctx, len(payloads))
	if err != nil {
		return nil, fault.In("queue: push to", q.prefix, err)
	}
	// They come together but go one by one: as long as one is there all were pushed.
	var t store.Txn
	wait := leases.NewID()
	if delay > 0 {
		t.Then = append(t.Then, client.Grant{ID: wait, TTL: max(delay, minDelay)})
	}
	if slices.ContainsFunc(payloads, func(b []byte) bool { return len(b) >= largePayload }) {
		t.If = append(t.If, store.Key(q.item(ids[0])+q.room()).Missing())
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
