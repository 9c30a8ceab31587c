package client

import (
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/internal/message"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// ttlOf is like msUp, but returns a lease.TTL.
func ttlOf(d time.Duration) lease.TTL { return lease.TTL(msUp(d)) }

func bytesOf(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

func rangeMessages(list []keyrange.Range) []*pb.KeyRange {
	out := make([]*pb.KeyRange, len(list))
	for i, r := range list {
		out[i] = &pb.KeyRange{}
		out[i].Key, out[i].RangeEnd = message.Span(r.Key, r.End)
	}
	return out
}

// heldOf converts ranges that a cache holds or must drop.
func heldOf(list []*pb.KeyRange) []keyrange.Range {
	if len(list) == 0 {
		return nil
	}
	out := make([]keyrange.Range, len(list))
	for i, m := range list {
		out[i] = keyrange.Range{Key: string(m.GetKey()), End: string(m.GetRangeEnd())}
	}
	return out
}

// duration converts milliseconds to a Duration. The result is capped at the longest Duration, 292
// years.
func duration(ms int64) time.Duration {
	return time.Duration(min(ms, int64(1<<63-1)/int64(time.Millisecond))) * time.Millisecond
}

func msUp(d time.Duration) int64 { return message.Ms(d) }
