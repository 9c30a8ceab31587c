package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Deletions watches a prefix and records when it sees the deletion of each key. The name of a key
// contains its number, so events need no lookup.
type Deletions struct {
	stream pb.Watch_WatchClient
	prefix []byte
	// deletion time of each key in nanoseconds since base, or 0, by key number
	seen []atomic.Int64
	base time.Time
	left atomic.Int64
	all  chan struct{} // closed when left reaches 0
}

// NumberedKey returns key number i under a prefix.
func NumberedKey(prefix []byte, i int) []byte {
	return binary.BigEndian.AppendUint32(append([]byte{}, prefix...), uint32(i))
}

// WatchDeletions starts watching n keys under a prefix that ends in '/'. The caller must then run
// Follow.
func WatchDeletions(
	ctx context.Context, c pb.WatchClient, prefix []byte, n int,
) (*Deletions, error) {
	end := append([]byte{}, prefix...)
	end[len(end)-1]++
	stream, err := OpenWatch(ctx, c, prefix, end)
	if err != nil {
		return nil, err
	}
	d := &Deletions{
		stream: stream, prefix: prefix, seen: make([]atomic.Int64, n), base: time.Now(),
		all: make(chan struct{}),
	}
	d.left.Store(int64(n))
	return d, nil
}

// Follow records deletions until all keys have been deleted or the stream ends.
func (d *Deletions) Follow() error {
	for {
		r, err := d.stream.Recv()
		if err != nil {
			return err
		}
		if r.Canceled {
			return fmt.Errorf("bench: watch cancelled: %s", r.CancelReason)
		}
		now := int64(time.Since(d.base))
		for _, ev := range r.Events {
			if ev.Type != mvccpb.Event_DELETE {
				continue
			}
			i := int(binary.BigEndian.Uint32(ev.Kv.Key[len(d.prefix):]))
			if d.seen[i].Swap(now) != 0 {
				return fmt.Errorf("bench: key %d was deleted twice", i)
			}
			if d.left.Add(-1) == 0 {
				close(d.all)
				return nil
			}
		}
	}
}

// All returns a channel that is closed once every key's deletion has been seen.
func (d *Deletions) All() <-chan struct{} { return d.all }

// Left returns the number of keys whose deletion has not been seen yet.
func (d *Deletions) Left() int { return int(d.left.Load()) }

// Seen returns when the deletion of key i was seen. If it has not been seen, ok is false.
func (d *Deletions) Seen(i int) (at time.Time, ok bool) {
	since := d.seen[i].Load()
	return d.base.Add(time.Duration(since)), since != 0
}

// Lateness adds to h, for each key whose deletion was seen, the time from its expiry to its
// deletion. The TTL is counted from when the last renewal was sent. So if a key is deleted early,
// the server is at fault, no matter how slow the network is.
func (d *Deletions) Lateness(h *Histogram, sent []time.Time, ttl time.Duration) error {
	for i := range d.seen {
		at, ok := d.Seen(i)
		if !ok {
			continue
		}
		late := at.Sub(sent[i].Add(ttl))
		if late < 0 {
			return fmt.Errorf("bench: lease %d ended %v before its expiry", i, -late)
		}
		h.Add(late)
	}
	return nil
}

// OpenWatch starts watching [key, end), and returns once the server has confirmed the watch.
func OpenWatch(
	ctx context.Context, c pb.WatchClient, key, end []byte,
) (pb.Watch_WatchClient, error) {
	stream, err := c.Watch(ctx)
	if err != nil {
		return nil, err
	}
	create := &pb.WatchCreateRequest{Key: key, RangeEnd: end}
	err = stream.Send(&pb.WatchRequest{
		RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create},
	})
	if err != nil {
		return nil, err
	}
	r, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if !r.Created || r.Canceled {
		return nil, fmt.Errorf("bench: watch not created: %s", r.CancelReason)
	}
	return stream, nil
}
