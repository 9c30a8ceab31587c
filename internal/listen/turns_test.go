package listen

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/mem"
)

// Long messages take turns, and short ones pass them.
func TestLongMessagesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := turns
		defer func() { turns = before }()
		turns = make(chan struct{}, 1)
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
		var done atomic.Int32
		for range 3 {
			go func() { decode(longMessage); done.Add(1) }()
		}
		if synctest.Wait(); done.Load() > 0 {
			t.Error("a long message does not wait for its turn")
		}
		end()
		if synctest.Wait(); done.Load() != 3 {
			t.Errorf("%d of 3 long messages had their turn", done.Load())
		}
	})
}
