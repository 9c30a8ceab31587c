package replica

import (
	"math"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/holder"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// TestSizeOfMany checks that Size is an upper bound, and a tight one for large messages. Each
// message has a thousand elements with the largest numbers.
func TestSizeOfMany(t *testing.T) {
	const n, most = 1000, math.MaxUint64
	key := strings.Repeat("k", 100)
	long := []keyrange.Range{{Key: key, End: key}}
	ack := NumberedAck{most, AckCache{
		ID: -1, Token: most, Term: most, Seq: most, Open: most, Dropped: long,
	}}
	for name, m := range map[string]*Message{
		"a snapshot's context": {Raft: &raftpb.Message{Context: make([]byte, n)}},
		"entries": {Raft: &raftpb.Message{Entries: slices.Repeat([]*raftpb.Entry{{
			Term: new(uint64(most)), Index: new(uint64(most)), Data: []byte(key),
		}}, n)}},
		"renewals": {Forward: &Forward{Renewals: slices.Repeat([]Ask{{most, -1, most}}, n)}},
		"leaving": {Forward: &Forward{Access: most, Groups: holder.Round{
			Number: most, Leave: slices.Repeat([]holder.Leaving{{ID: -1, Group: most, AsOf: most >> 1}}, n),
		}}},
		"groups": {Forward: &Forward{Groups: holder.Round{
			Number: 1, Renew: slices.Repeat([]lease.GroupID{most}, n),
		}}},
		"queries":   {Forward: &Forward{Queries: slices.Repeat([]lease.ID{-1}, n)}},
		"abandoned": {Forward: &Forward{Abandoned: slices.Repeat([]lease.ID{-1}, n)}},
		"acks":      {Forward: &Forward{Acks: slices.Repeat([]NumberedAck{ack}, n)}},
		"fills": {Forward: &Forward{
			Fills: slices.Repeat([]Fill{{ID: -1, Token: most, Ranges: long}}, n),
		}},
		"opens": {Forward: &Forward{
			Opens: slices.Repeat([]NumberedOpen{{most, -1, most, long}}, n),
		}},
		"refusals": {Reply: &Reply{Refused: slices.Repeat([]Refusal{{most, 1}}, n)}},
		"left":     {Reply: &Reply{Left: slices.Repeat([]Left{{math.MinInt64, true}}, n)}},
		"renewed":  {Reply: &Reply{Renewed: slices.Repeat([]Renewed{{most, math.MinInt64, 1, most}}, n)}},
		"renewed groups": {Reply: &Reply{GroupRound: most, Groups: slices.Repeat(
			[]holder.RenewedGroup{{ID: most, TTL: math.MaxInt64, At: most >> 1}}, n)}},
		"left groups": {Reply: &Reply{GroupRound: most, Groups: []holder.RenewedGroup{
			{Left: slices.Repeat([]lease.ID{-1}, n)},
		}}},
		"filled": {Reply: &Reply{Filled: slices.Repeat([]bool{true}, n)}},
		"opened": {Reply: &Reply{Opened: slices.Repeat([]Opened{{most, 1}}, n)}},
		"invalidations": {Reply: &Reply{Invalidations: slices.Repeat([]Invalidation{{
			ID: -1, Token: most, Term: most, Seq: most, Drop: long,
		}}, n)}},
		"slow caches": {Reply: &Reply{
			AboutSlow: true, Slow: slices.Repeat([]SlowNotice{{-1, most, math.MinInt64}}, n),
		}},
	} {
		m.Version = 1
		size := len(m.AppendTo(nil))
		if got := m.Size(); got < size || got > fixedSize+2*size {
			t.Errorf("%s: Size returns %d for %d bytes", name, got, size)
		}
	}
}
