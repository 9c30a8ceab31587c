package listen

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/mem"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestLongMessagesTakeTurns checks that long messages are decoded a few at a time, and that short
// ones overtake them.
func TestLongMessagesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := turns
		defer func() { turns = before }()
		turns = [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
		codec := newAnswers().Codec(rawCodec{})
		decode := func(bytes int) {
			var b []byte
			err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(make([]byte, bytes))}, &b)
			if err != nil || len(b) != bytes {
				t.Errorf("%d bytes were decoded as %d, %v", bytes, len(b), err)
			}
		}
		end := Turn(longMessage)
		decode(longMessage - 1)
		endMiddle := Turn(middleMessage)
		decode(middleMessage - 1)
		for _, m := range []any{new(pb.ClientMessage), new(pb.RelayRequest)} {
			data := mem.BufferSlice{mem.SliceBuffer(make([]byte, longMessage-1))}
			if err := codec.Unmarshal(data, m); err != nil {
				t.Error(err)
			}
		}
		var done atomic.Int32
		for range 3 {
			go func() { decode(longMessage); done.Add(1) }()
			go func() { decode(middleMessage); done.Add(1) }()
		}
		if synctest.Wait(); done.Load() > 0 {
			t.Error("a message does not wait for its turn")
		}
		endMiddle()
		if synctest.Wait(); done.Load() != 3 {
			t.Errorf("%d of 3 messages had their turn", done.Load())
		}
		end()
		if synctest.Wait(); done.Load() != 6 {
			t.Errorf("%d of 6 messages had their turn", done.Load())
		}
	})
}
