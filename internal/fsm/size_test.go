package fsm

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// TestSize: no command is longer in the log than its Size says, whatever its numbers are, and
// Size is not much more for one that is large. What of a command can be large counts.
func TestSize(t *testing.T) {
	for seed := range uint64(3000) {
		c := randomCommand(rand.New(rand.NewPCG(seed, 7)))
		if n := len(AppendCommand(nil, c)); n > Size(c) {
			t.Errorf("%d bytes, Size says %d: %#v", n, Size(c), c)
		}
	}
	const large = 100_000
	text := strings.Repeat("t", large)
	most := lease.ID(math.MinInt64)
	full := lease.Terms{
		ID: most, TTL: math.MinInt64, Name: text, Owner: text, RequestID: text,
		Labels: map[string]string{text: text, "": ""}, LockDelay: math.MinInt64, KeepKeys: true,
		Secret: lease.Secret{1}, Bound: true,
	}
	put := &Put{
		Key: text, Value: []byte(text), Lease: most, MaxKeys: math.MinInt, LeaseName: text,
		LeaseToken: math.MaxUint64,
	}
	remove := &DeleteRange{Key: text, End: text}
	grant := &Grant{Terms: full, Renew: true, Holds: []keyrange.Range{{Key: text, End: text}, {}}}
	revoke := &Revoke{ID: most, Name: text, Token: math.MaxUint64, By: text}
	o := mvcc.RangeOptions{
		Revision: math.MinInt64, Limit: math.MinInt64, MinModRevision: math.MinInt64,
		MaxModRevision: math.MinInt64, MinCreateRevision: math.MinInt64,
		MaxCreateRevision: math.MinInt64,
	}
	read := &Range{Key: text, End: text, Options: o}
	bytes := Compare{Key: text, End: text, Target: TargetValue, Value: []byte(text)}
	number := Compare{Key: text, End: text, Target: TargetMod, Number: math.MinInt64}
	touch := &Touch{ID: most, Name: text, Token: math.MaxUint64}
	ops := []Op{
		{Put: put},
		{Delete: remove},
		{Range: read},
		{Grant: grant},
		{Revoke: revoke},
		{Touch: touch},
		{Draw: true},
	}
	txn := &Txn{Compare: []Compare{bytes, number}, Then: ops}
	urls := []string{text, ""}
	member := Member{ID: math.MaxUint64, Name: text, PeerURLs: urls, ClientURLs: urls}
	member.Versions = version.Range{Oldest: 1, Newest: 255}
	for _, c := range []Command{
		put, remove, grant, revoke, txn,
		&Txn{Then: []Op{{Txn: txn}}, Else: ops},
		&ChangeTTL{ID: most, Name: text, Token: math.MaxUint64, TTL: math.MinInt64},
		&HandOver{ID: most, Name: text, Token: math.MaxUint64, Owner: text},
		&Resume{ID: most, Name: text},
		&SetMember{member}, &AddMember{member}, &RemoveMember{math.MaxUint64},
		&SetVersion{Version: 255, Hold: true},
		&PromoteMember{math.MaxUint64}, &Compact{math.MinInt64}, &OpenSession{},
		&SetAlarm{Alarm: Alarm{Member: math.MaxUint64}},
	} {
		inOnce := c
		if c.kind().repeatable() {
			inOnce = &Once{Session{math.MaxUint64, 1}, math.MaxUint64, math.MaxUint64, c}
		}
		n := len(AppendCommand(nil, inOnce))
		if size := Size(inOnce); n > size || n > large && n < size-size/50 {
			t.Errorf("%T: %d bytes, Size says %d", c, n, size)
		}
	}
}
