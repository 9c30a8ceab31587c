package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A graveyard watches a prefix and notes when each key of it was seen deleted.
// Keys carry their number, so nothing is looked up while events stream in.
type graveyard struct {
	stream pb.Watch_WatchClient
	prefix []byte
	gone   []atomic.Int64 // by number: when, in nanoseconds since base; 0: still there
	base   time.Time
	left   atomic.Int64
	empty  chan struct{} // closed when left reaches 0
}

var graves = []byte("grave/")

// graveKey is the key with number i.
func graveKey(i int) []byte { return numbered(graves, i) }

// numbered is the key with number i below a prefix.
func numbered(prefix []byte, i int) []byte {
	return binary.BigEndian.AppendUint32(append([]byte{}, prefix...), uint32(i))
}

// newGraveyard starts the watch; follow must run then.
func newGraveyard(ctx context.Context, c pb.WatchClient, n int) (*graveyard, error) {
	return graveyardAt(ctx, c, graves, n)
}

// graveyardAt is newGraveyard for keys below another prefix, which ends in '/'.
func graveyardAt(
	ctx context.Context, c pb.WatchClient, prefix []byte, n int,
) (*graveyard, error) {
	end := append([]byte{}, prefix...)
	end[len(end)-1]++
	stream, err := openWatch(ctx, c, prefix, end)
	if err != nil {
		return nil, err
	}
	g := &graveyard{
		stream: stream, prefix: prefix, gone: make([]atomic.Int64, n), base: time.Now(),
		empty: make(chan struct{}),
	}
	g.left.Store(int64(n))
	return g, nil
}

// follow notes deletions until all are gone or the stream ends.
func (g *graveyard) follow() error {
	for {
		r, err := g.stream.Recv()
		if err != nil {
			return err
		}
		if r.Canceled {
			return fmt.Errorf("bench: watch cancelled: %s", r.CancelReason)
		}
		now := int64(time.Since(g.base))
		for _, ev := range r.Events {
			if !isDelete(ev) {
				continue
			}
			i := int(binary.BigEndian.Uint32(ev.Kv.Key[len(g.prefix):]))
			if g.gone[i].Swap(now) != 0 {
				return fmt.Errorf("bench: key %d was deleted twice", i)
			}
			if g.left.Add(-1) == 0 {
				close(g.empty)
				return nil
			}
		}
	}
}

// lateness fills h with how long after its expiry each key was gone. Expiry
// counts from when the last renewal was sent, so an early end is a fault of the
// server, whatever the network did.
func (g *graveyard) lateness(h *Histogram, sent []time.Time, ttl time.Duration) error {
	for i := range g.gone {
		at := g.gone[i].Load()
		if at == 0 {
			continue
		}
		late := g.base.Add(time.Duration(at)).Sub(sent[i].Add(ttl))
		if late < 0 {
			return fmt.Errorf("bench: lease %d ended %v before its expiry", i, -late)
		}
		h.Add(late)
	}
	return nil
}

// runTrickle keeps 200 leases a second ending, and measures how late each
// ends. Two seconds is the shortest TTL that etcd grants.
func runTrickle(ctx context.Context, e *Env) (Result, error) {
	const perSecond, ttl = 200, 2
	n := int(e.Duration.Seconds() * perSecond)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, err := newGraveyard(ctx, e.Client.Watch(0), n)
	if err != nil {
		return Result{}, err
	}
	var followed error
	var wg sync.WaitGroup
	wg.Go(func() { followed = g.follow() })
	sent := make([]time.Time, n)
	var m measure
	err = m.during(e.Server, func() error {
		var h Histogram
		err := openLoop(ctx, n, time.Second/perSecond, &h, func(ctx context.Context, c, i int) error {
			sent[i] = time.Now()
			return e.grantWithKey(ctx, c, graveKey(i), ttl)
		})
		if err != nil {
			return err
		}
		select {
		case <-g.empty:
		case <-time.After(ttl*time.Second + e.DrainCap):
			return errors.New("bench: leases that should have ended are still there")
		}
		return nil
	})
	cancel()
	wg.Wait()
	if err != nil {
		return Result{}, errors.Join(err, followed)
	}
	if err := g.lateness(&m.hist, sent, ttl*time.Second); err != nil {
		return Result{}, err
	}
	r := m.result()
	r.Rate = perSecond
	r.More = []Metric{{"latest", ms(m.hist.Max()), "ms"}}
	return r, nil
}

// openLoop starts n operations at a steady pace, whether or not the ones
// before are done, and counts each latency from when it was due: a stall is
// felt by all that it delays.
func openLoop(ctx context.Context, n int, every time.Duration, h *Histogram, f op) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error // guarded by mu, as is h
	began := time.Now()
	tick := time.NewTicker(min(every, time.Millisecond))
	defer tick.Stop()
	for i := 0; i < n; {
		due := began.Add(time.Duration(i) * every)
		if time.Now().Before(due) {
			select {
			case <-tick.C:
				continue
			case <-ctx.Done():
				n = i
				continue
			}
		}
		k := i
		i++
		wg.Go(func() {
			err := f(ctx, k, k)
			mu.Lock()
			defer mu.Unlock()
			h.Add(time.Since(due))
			if err != nil && failed == nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return failed
}

// grantWithKey grants a lease and puts a key on it.
func (e *Env) grantWithKey(ctx context.Context, caller int, key []byte, ttl int64) error {
	id, err := e.grant(ctx, caller, ttl)
	if err != nil {
		return err
	}
	return e.put(ctx, caller, &pb.PutRequest{Key: key, Value: make([]byte, valueSize), Lease: id})
}
