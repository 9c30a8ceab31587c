package listen

import (
	"runtime"

	"google.golang.org/grpc/mem"

	pb "leasehold.dev/api/leasehold/v1"
)

// turns holds a token for each message that is being decoded, or being encoded as JSON. There are
// two sets of tokens: one for middle-sized and one for long messages. Each has fewer tokens than
// there are processors. A message with many small parts takes a second of CPU time and 70 MB of
// memory for each megabyte of its size. Dozens of them at once would block everything else in the
// process.
var turns = [2]chan struct{}{newTurns(), newTurns()}

func newTurns() chan struct{} { return make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)) }

// Messages shorter than middleMessage do not take turns. Messages of at least longMessage bytes do
// not delay shorter ones.
const (
	middleMessage = 8 << 10
	longMessage   = 64 << 10
)

// Turn waits until a message of this size is allowed to be decoded or encoded. Short messages do
// not wait. Turn returns a function that ends the turn. Until then, the caller must not block.
func Turn(bytes int) (end func()) {
	if bytes < middleMessage {
		return func() {}
	}
	its := turns[0]
	if bytes >= longMessage {
		its = turns[1]
	}
	its <- struct{}{}
	return func() { <-its }
}

// Unmarshal implements encoding.CodecV2. Stream messages and messages from relays do not wait for a
// turn if they are shorter than longMessage. Even a stream message that renews 4,000 leases is
// shorter.
func (c countingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	bytes := data.Len()
	switch v.(type) {
	case *pb.RelayRequest, *pb.ClientMessage:
		if bytes < longMessage {
			return c.CodecV2.Unmarshal(data, v)
		}
	}
	defer Turn(bytes)()
	return c.CodecV2.Unmarshal(data, v)
}
