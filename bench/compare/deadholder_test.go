package compare

import (
	"context"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"leasehold.dev/internal/load"
)

// endings is a server whose leases end at the given times after the watch began. A time of 0 means
// never.
type endings struct {
	pb.Watch_WatchClient
	began   time.Time
	after   []time.Duration
	answers int
}

func (e *endings) Watch(context.Context, ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	return e, nil
}

func (e *endings) Send(*pb.WatchRequest) error { return nil }

func (e *endings) Recv() (*pb.WatchResponse, error) {
	i := e.answers - 1
	if e.answers++; i < 0 {
		e.began = time.Now()
		return &pb.WatchResponse{Created: true}, nil
	}
	if i == len(e.after) {
		return nil, io.EOF
	}
	if e.after[i] == 0 {
		return e.Recv()
	}
	<-time.After(time.Until(e.began.Add(e.after[i])))
	gone := &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: endingKey(i)}}
	return &pb.WatchResponse{Events: []*mvccpb.Event{gone}}, nil
}

// TestSilence checks how lease ends are counted. Ends are timed from the last renewal, leases that
// never end are included, and a lease that ends too early is an error.
func TestSilence(t *testing.T) {
	count := func(s *silence, after ...time.Duration) error {
		sent := make([]time.Time, len(after))
		for i := range sent {
			sent[i] = time.Now().Add(time.Second)
		}
		gone, err := load.WatchDeletions(t.Context(), &endings{after: after}, ending, len(after))
		if err != nil {
			t.Fatal(err)
		}
		_ = gone.Follow() // returns when the stream ends
		return s.count(gone, sent)
	}
	synctest.Test(t, func(t *testing.T) {
		var s silence
		if err := count(&s, 6100*time.Millisecond, 0, 7*time.Second); err != nil {
			t.Fatal(err)
		}
		want := sample{5100 * time.Millisecond, 6 * time.Second}
		if !slices.Equal(s.ended, want) || s.left != 1 {
			t.Errorf("%+v", s)
		}
		if err := count(&s, 5999*time.Millisecond); err == nil {
			t.Error("a lease may end before its TTL")
		}
	})
}
