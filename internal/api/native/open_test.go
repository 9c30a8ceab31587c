package native

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestBackPressure checks that if a client never stops sending, the server eventually stops reading
// its stream.
func TestBackPressure(t *testing.T) {
	onStream(t, func(b *bench) {
		many := &pb.ClientMessage{}
		for id := range uint64(maxOpen + 10) {
			many.Requests = append(many.Requests, putRequest(id+1, 60_000))
		}
		b.requests <- many
		synctest.Wait()
		b.stop() // the receiver blocks and then gives up
		if err := <-b.ended; err == nil {
			t.Error("the stream ended without an error")
		}
		b.ended <- nil
		synctest.Wait()
		if n := len(b.node.submitted); n != maxOpen {
			t.Errorf("%d requests are open", n)
		}
	})
}

// TestNoRoom checks that a stream with too many open requests ends if no request is answered for a
// while, but not before. The stream has watches, and a put that completes within that time.
func TestNoRoom(t *testing.T) {
	onStream(t, func(b *bench) {
		many := &pb.ClientMessage{Requests: []*pb.Request{putRequest(1, 0)}}
		for id := range uint64(maxOpen + 1) {
			many.Requests = append(many.Requests, watchRequest(id+2, "k"))
		}
		b.requests <- many
		var last time.Time
		for range 2 * int(roomPatience/time.Second) {
			for _, r := range b.all() {
				if r.Id == 1 {
					last = time.Now()
				}
			}
			select {
			case err := <-b.ended:
				if status.Code(err) != codes.ResourceExhausted || time.Since(last) != roomPatience {
					t.Errorf("%v after the last answer the stream ended with %v", time.Since(last), err)
				}
				b.ended <- nil
				return
			default:
				b.pass(time.Second)
			}
		}
		t.Fatal("the stream did not end")
	})
}
