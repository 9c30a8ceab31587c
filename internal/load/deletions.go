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

// Deletions watches a prefix and notes when each key of it was seen deleted.
// Keys carry their number, so nothing is looked up while events stream in.
type Deletions struct {
	stream pb.Watch_WatchClient
	prefix []byte
	seen   []atomic.Int64 // by number: when, in nanoseconds since base; 0: still there
	base   time.Time
	left   atomic.Int64
	all    chan struct{} // closed when left reaches 0
}

// NumberedKey is the key with number i below a prefix.
func NumberedKey(prefix []byte, i int) []byte {
	return binary.BigEndian.AppendUint32(append([]byte{}, prefix...), uint32(i))
}

// WatchDeletions starts the watch of n keys below a prefix, which ends in '/';
// Follow must run then.
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

// Follow notes deletions until all are gone or the stream ends.
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

// All returns a channel that is closed when every key was seen deleted.
func (d *Deletions) All() <-chan struct{} { return d.all }

// Left is how many keys were not seen deleted yet.
func (d *Deletions) Left() int { return int(d.left.Load()) }

// Seen says when the deletion of key i was seen, if it was.
func (d *Deletions) Seen(i int) (at time.Time, ok bool) {
	since := d.seen[i].Load()
	return d.base.Add(time.Duration(since)), since != 0
}

// Lateness fills h with how long after its expiry each key was gone. Expiry
// counts from when the last renewal was sent, so an early end is a fault of the
// server, whatever the network did.
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

// OpenWatch starts a watch of [key, end) and returns when it is in place.
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
