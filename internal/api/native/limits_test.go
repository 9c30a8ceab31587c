package native

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestProgressMany checks that many watches started together all receive progress notifications.
func TestProgressMany(t *testing.T) {
	onStream(t, func(b *bench) {
		var list []*pb.Request
		for id := range uint64(1000) {
			list = append(list, &pb.Request{Id: id + 1, Body: &pb.Request_Watch{
				Watch: &pb.WatchRequest{Key: []byte("k"), ProgressMs: 10_000},
			}})
		}
		b.send(list...)
		times := make(map[uint64]int)
		for range 130 {
			for _, r := range b.got() {
				times[r.Id]++
			}
			b.pass(100 * time.Millisecond)
		}
		for id := range uint64(1000) {
			if n := times[id+1]; n != 2 {
				t.Fatalf("watch %d has %d responses in 13 s", id+1, n)
			}
		}
	})
}

// TestCancelsGather checks that a client that cancels one request repeatedly, without reading, uses
// no more memory than a client that cancels it once.
func TestCancelsGather(t *testing.T) {
	s := &stream{
		store: &store{node: newNode()}, lasting: lasting{waker: newWaker(nil)},
		open: make(map[uint64]*request),
	}
	s.open[1] = &request{stream: s, id: 1}
	for range 1000 {
		s.cancel(1)
	}
	s.expire(time.Now())
	if len(s.done) != 1 {
		t.Errorf("%d answers to one request", len(s.done))
	}
}

// TestFollowAgain checks that a client that has as many event requests as allowed can start another
// one immediately after it cancels one.
func TestFollowAgain(t *testing.T) {
	follow := func(id uint64) *pb.Request {
		return &pb.Request{Id: id, Body: &pb.Request_Events{Events: &pb.EventsRequest{}}}
	}
	onStream(t, func(b *bench) {
		var list []*pb.Request
		for id := range uint64(maxFollowing) {
			list = append(list, follow(id+1))
		}
		b.send(list...)
		if list := b.got(); len(list) != maxFollowing {
			t.Fatalf("responses %v", list)
		}
		id := uint64(1000)
		for i := range uint64(maxFollowing) {
			b.send(cancelRequest(id, i+1), follow(id+1), follow(id+2))
			for _, r := range b.got() {
				if refused := r.GetError() != nil; refused != (r.Id == id+2) {
					t.Errorf("response %v", r)
				}
			}
			id += 10
		}
	})
}

// TestEndWhileRequestsLast checks that a stream ends if its client violates the protocol, even
// while a request still has a goroutine running.
func TestEndWhileRequestsLast(t *testing.T) {
	onStream(t, func(b *bench) {
		b.send(&pb.Request{Id: 1, Body: &pb.Request_Events{Events: &pb.EventsRequest{}}})
		b.send(putRequest(1, 0))
		synctest.Wait()
		select {
		case err := <-b.ended:
			if !strings.Contains(err.Error(), "the IDs must increase") {
				t.Error(err)
			}
			b.ended <- nil
		default:
			t.Error("the stream did not end")
		}
	})
}
