package load

import (
	"context"
	"encoding/hex"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
)

// script is a watch with scripted answers, one per second.
type script struct {
	pb.Watch_WatchClient
	list []*pb.WatchResponse
}

func (s *script) Watch(context.Context, ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	return s, nil
}

func (s *script) Send(*pb.WatchRequest) error { return nil }

func (s *script) Recv() (*pb.WatchResponse, error) {
	if len(s.list) == 0 {
		return nil, io.EOF
	}
	r := s.list[0]
	s.list = s.list[1:]
	if !r.Created {
		<-time.After(time.Second)
	}
	return r, nil
}

// events returns a response with one event for each key.
func events(kind mvccpb.Event_EventType, keys ...int) *pb.WatchResponse {
	r := &pb.WatchResponse{}
	for _, i := range keys {
		r.Events = append(r.Events, &mvccpb.Event{
			Type: kind, Kv: &mvccpb.KeyValue{Key: NumberedKey([]byte("a/"), i)},
		})
	}
	return r
}

// TestDeletions checks that deletion times are recorded, and that a server is caught if it ends a
// lease early or deletes a key twice.
func TestDeletions(t *testing.T) {
	follow := func(n int, list ...*pb.WatchResponse) (*Deletions, error) {
		list = append([]*pb.WatchResponse{{Created: true}}, list...)
		d, err := WatchDeletions(t.Context(), &script{list: list}, []byte("a/"), n)
		if err != nil {
			t.Fatal(err)
		}
		return d, d.Follow()
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		d, err := follow(3, events(mvccpb.Event_PUT, 0, 1, 2), events(mvccpb.Event_DELETE, 2, 0))
		if err != io.EOF || d.Left() != 1 {
			t.Errorf("%v, %d are left", err, d.Left())
		}
		for i, want := range []bool{true, false, true} {
			if at, ok := d.Seen(i); ok != want || ok && !at.Equal(began.Add(2*time.Second)) {
				t.Errorf("key %d: %v, %v", i, ok, at.Sub(began))
			}
		}
		var h Histogram
		sent := []time.Time{began, began, began.Add(time.Second)}
		if err := d.Lateness(&h, sent, time.Second); err != nil || h.Count() != 2 ||
			h.Max() != time.Second {
			t.Errorf("%v: %d, at most %v late", err, h.Count(), h.Max())
		}
		if err := d.Lateness(&h, sent, 1001*time.Millisecond); err == nil {
			t.Error("a lease may end before its time")
		}
		d, err = follow(2, events(mvccpb.Event_DELETE, 1), events(mvccpb.Event_DELETE, 0))
		if err != nil || d.Left() != 0 {
			t.Errorf("%v, %d are left", err, d.Left())
		}
		<-d.All()
		_, err = follow(3, events(mvccpb.Event_DELETE, 1), events(mvccpb.Event_DELETE, 1))
		if err == nil || !strings.Contains(err.Error(), "key 1 was deleted twice") {
			t.Errorf("error %v", err)
		}
		_, err = follow(3, &pb.WatchResponse{Canceled: true, CancelReason: "enough"})
		if err == nil || !strings.Contains(err.Error(), "enough") {
			t.Errorf("error %v", err)
		}
	})
	if got := hex.EncodeToString(NumberedKey([]byte("a/"), 258)); got != "612f00000102" {
		t.Error(got)
	}
}

// TestOpenWatch checks that OpenWatch returns the reason why a watch was refused.
func TestOpenWatch(t *testing.T) {
	refused := &pb.WatchResponse{Created: true, Canceled: true, CancelReason: "no room"}
	_, err := OpenWatch(t.Context(), &script{list: []*pb.WatchResponse{refused}}, []byte("a"), nil)
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("error %v", err)
	}
}
