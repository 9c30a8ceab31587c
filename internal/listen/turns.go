package listen

import (
	"runtime"

	"google.golang.org/grpc/mem"
)

// turns has a token for each long message that is being decoded, or encoded as JSON. These are
// fewer than the processors. A message of many small ones takes a second of CPU time and 70 MB for
// each megabyte, and dozens at a time would hold up everything else in the process.
var turns = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1))

// longMessage is the size from which messages take turns. Those of relays are shorter, and so are
// renewals of 4,000 leases.
const longMessage = 64 << 10

// Turn waits for the turn of a message of so many bytes, unless it is short. It returns a function
// that ends the turn. The caller must not wait for anything before that.
func Turn(bytes int) (end func()) {
	if bytes < longMessage {
		return func() {}
	}
	turns <- struct{}{}
	return func() { <-turns }
}

// Unmarshal implements encoding.CodecV2.
func (c countingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	defer Turn(data.Len())()
	return c.CodecV2.Unmarshal(data, v)
}
