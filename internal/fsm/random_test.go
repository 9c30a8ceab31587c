package fsm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
	"leasehold.dev/test/tier"
)

// randomCommand returns a random command over few keys and leases, so that commands often affect
// the same ones.
func randomCommand(rng *rand.Rand) Command {
	key := func() string { return string(rune('a' + rng.IntN(8))) }
	id := func() lease.ID { return lease.ID(rng.IntN(5)) }
	put := func() *Put {
		c := &Put{
			Key: key(), Value: []byte{byte(rng.IntN(256))}, Lease: id(),
			IgnoreValue: rng.IntN(8) == 0, IgnoreLease: rng.IntN(8) == 0,
		}
		// long enough to be shared, and usually equal to the previous value
		if rng.IntN(6) == 0 {
			c.Value = bytes.Repeat([]byte{byte(rng.IntN(2))}, mvcc.ShortValue+1)
		}
		if rng.IntN(8) == 0 {
			c.LeaseToken = randomToken(rng)
		}
		byItsName(rng, &c.Lease, &c.LeaseName)
		return c
	}
	op := func() Op {
		switch rng.IntN(8) {
		case 7:
			return Op{Draw: true}
		case 6:
			return Op{Txn: putBound(key(), id(), 77)}
		case 5:
			return Op{Grant: randomGrant(rng)}
		case 4:
			c := &Revoke{ID: id(), Token: randomToken(rng), By: "me"}
			byItsName(rng, &c.ID, &c.Name)
			return Op{Revoke: c}
		case 3:
			c := &Touch{ID: id(), Token: randomToken(rng)}
			byItsName(rng, &c.ID, &c.Name)
			return Op{Touch: c}
		case 0:
			return Op{Put: put()}
		case 1:
			return Op{Delete: &DeleteRange{Key: key()}}
		default:
			return Op{Range: &Range{Key: key(), End: "\x00"}}
		}
	}
	switch rng.IntN(20) {
	case 18:
		return putBound(key(), id(), 88)
	case 17:
		return &DropOrphans{Tokens: []lease.Token{randomToken(rng), randomToken(rng)}}
	case 0:
		return &DeleteRange{Key: key(), End: key(), PrevKV: true}
	case 1, 2:
		return randomGrant(rng)
	case 3:
		c := &Revoke{ID: id(), Token: randomToken(rng)}
		byItsName(rng, &c.ID, &c.Name)
		return c
	case 4:
		return &Expire{Term: uint64(rng.IntN(2)) + 1, Leases: []lease.Due{{
			ID: id(), Token: lease.Token(rng.IntN(60)), Stamp: uint64(1 + rng.IntN(3)),
		}}}
	case 5:
		return &Checkpoint{Term: 1, Leases: []lease.Checkpoint{{
			ID: id(), Token: lease.Token(rng.IntN(60)), Remaining: lease.TTL(rng.IntN(3000)),
			Stamp: uint64(rng.IntN(3)),
		}}}
	case 6:
		return &Compact{Revision: int64(rng.IntN(60))}
	case 7:
		c := Compare{Key: key(), Number: 1}
		c.Target, c.Relation = Target(rng.IntN(5)), Relation(rng.IntN(4))
		if rng.IntN(3) == 0 {
			c.Target = TargetLeaseAlive + Target(rng.IntN(3))
			c.Number = int64(rng.IntN(8))
			if c.Target == TargetLeaseName {
				c.Number, c.Value = 0, []byte{byte('a' + rng.IntN(3))}
			}
		}
		if c.Target == TargetValue {
			c.Number = 0
		}
		return &Txn{Compare: []Compare{c}, Then: []Op{op(), op()}, Else: []Op{op()}}
	case 8:
		c := &ChangeTTL{ID: id(), Token: randomToken(rng), TTL: lease.TTL(rng.IntN(9999))}
		byItsName(rng, &c.ID, &c.Name)
		return c
	case 9:
		c := &HandOver{ID: id(), Token: randomToken(rng), Owner: key(), Secret: randomSecret(rng)}
		byItsName(rng, &c.ID, &c.Name)
		return c
	case 10:
		c := &Resume{ID: id(), Secret: randomSecret(rng)}
		byItsName(rng, &c.ID, &c.Name)
		return c
	case 11, 12:
		t := &Txn{}
		for range 2 + rng.IntN(4) {
			t.Then = append(t.Then, op())
		}
		return &Txn{Then: append([]Op{op(), op(), {Txn: t}}, op())}
	default:
		return put()
	}
}

// byItsName occasionally sets a random lease name, usually in place of the ID.
func byItsName(rng *rand.Rand, id *lease.ID, name *string) {
	if rng.IntN(4) > 0 {
		return
	}
	*name = string(rune('a' + rng.IntN(3)))
	if rng.IntN(4) > 0 {
		*id = 0
	}
}

// putBound returns a transaction that puts a key with a lease of its own.
func putBound(key string, id lease.ID, ttl lease.TTL) *Txn {
	return &Txn{Then: []Op{
		{Grant: &Grant{Terms: lease.Terms{ID: id, TTL: ttl, Bound: true}}},
		{Put: &Put{Key: key, Lease: id, PrevKV: true}},
	}}
}

func randomGrant(rng *rand.Rand) *Grant {
	g := &Grant{Terms: randomTerms(rng)}
	for range rng.IntN(3) {
		g.Holds = append(g.Holds, keyrange.Range{Key: string(rune('a' + rng.IntN(8)))})
	}
	return g
}

func randomTerms(rng *rand.Rand) lease.Terms {
	t := lease.Terms{ID: lease.ID(rng.IntN(5)), TTL: lease.TTL(1 + rng.IntN(9999))}
	if rng.IntN(2) == 0 {
		t.Name = string(rune('a' + rng.IntN(3)))
		t.RequestID = []string{"", "r"}[rng.IntN(2)]
		t.LockDelay = lease.TTL(rng.IntN(2) * 100)
		t.KeepKeys = rng.IntN(2) == 0
		t.Bound = rng.IntN(3) == 0
		t.Secret = randomSecret(rng)
	}
	return t
}

func randomSecret(rng *rand.Rand) lease.Secret { return lease.Secret{byte(rng.IntN(2))} }

func randomToken(rng *rand.Rand) lease.Token { return lease.Token(max(0, rng.IntN(60)-20)) }

// now sets the token of most commands to the current token of their lease.
func now(rng *rand.Rand, m *Machine, c Command) {
	token := func(id lease.ID, t *lease.Token) {
		if info, ok := m.lessor.Lookup(id); ok && rng.IntN(4) > 0 {
			*t = info.Token
		}
	}
	switch c := c.(type) {
	case *ChangeTTL:
		id, _ := m.resolve(c.ID, c.Name)
		token(id, &c.Token)
	case *HandOver:
		id, _ := m.resolve(c.ID, c.Name)
		token(id, &c.Token)
	case *Expire:
		token(c.Leases[0].ID, &c.Leases[0].Token)
	case *Checkpoint:
		token(c.Leases[0].ID, &c.Leases[0].Token)
	}
}

// TestSameCommandsSameState (S3) checks that two machines given the same commands have the same
// hash after each command. One of them is restored several times, scrubs at other times, and does
// not time leases.
func TestSameCommandsSameState(t *testing.T) {
	for seed := range uint64(tier.Budget(20, 60)) {
		rng := rand.New(rand.NewPCG(seed, 0))
		cfg := Config{Lease: lease.Config{MaxKeys: rng.IntN(4)}}
		a, b := New(cfg), New(cfg)
		a.Lessor().Promote(0)
		checkSee := uint64(0)
		for i := range 300 {
			c := randomCommand(rng)
			now(rng, a, c)
			a.Lessor().Advance(lease.Instant(i * 100))
			before := hash(t, a)
			ra, rb := apply(t, a, c), apply(t, b, c)
			if fmt.Sprint(ra.Err) != fmt.Sprint(rb.Err) || ra.Revision != rb.Revision {
				t.Fatalf("seed %d: %#v: %+v and %+v", seed, c, ra, rb)
			}
			if ra.Err != nil && hash(t, a) != before {
				t.Fatalf("seed %d: %#v failed with %v and changed something", seed, c, ra.Err)
			}
			x, y := after(t, a, checkSee), after(t, b, checkSee)
			if checkSee = a.events.Last(); !reflect.DeepEqual(x, y) {
				t.Fatalf("seed %d: %#v: events %+v and %+v", seed, c, x, y)
			}
			if rng.IntN(20) == 0 {
				a.Scrub(1 + rng.IntN(5))
			}
			if rng.IntN(50) == 0 {
				b = restored(t, b)
			}
			if ha, hb := hash(t, a), hash(t, b); ha != hb {
				t.Fatalf("seed %d, step %d: hashes %x and %x after %#v", seed, i, ha, hb, c)
			}
		}
	}
}
