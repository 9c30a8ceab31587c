package listen

import (
	"runtime"

	"google.golang.org/grpc/mem"

	pb "leasehold.dev/api/leasehold/v1"
)

// turns has a token for each message that is being decoded, or encoded as JSON, by their length:
// middle or long. These are fewer than the processors. A message of many small parts takes a second
// of CPU time and 70 MB for each megabyte, and dozens at a time would hold up everything else in
// the process.
var turns = [2]chan struct{}{newTurns(), newTurns()}

func newTurns() chan struct{} { return make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)) }

// Messages shorter than middleMessage take no turns. Messages of at least longMessage do not hold
// up shorter ones.
const (
	middleMessage = 8 << 10
	longMessage   = 64 << 10
)

// Turn waits until a message of this size may be decoded or encoded, unless it is short. It returns
// a function that ends the turn. The caller must not block before it ends the turn.
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

// Unmarshal implements encoding.CodecV2. Messages from relays, and renewals of 4,000 leases over a
// stream, are shorter than a long message, and do not wait for long ones.
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
