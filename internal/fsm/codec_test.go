package fsm

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// samples returns at least one command of every type, with every field set.
func samples() []Command {
	put := &Put{Key: "k", Value: []byte("v"), Lease: 7, PrevKV: true, IgnoreLease: true, MaxKeys: 300}
	del := &DeleteRange{Key: "a", End: "b", PrevKV: true}
	read := &Range{Key: "a", End: "\x00", Options: mvcc.RangeOptions{
		Revision: 3, Limit: 4, MinModRevision: 5, MaxModRevision: 6, MinCreateRevision: 7,
		MaxCreateRevision: 8, SortBy: mvcc.ByMod, Descend: true, CountOnly: true,
	}}
	txn := &Txn{
		Compare: []Compare{
			{Key: "x", Target: TargetValue, Relation: NotEqual, Value: []byte("y")},
			{Key: "x", End: "z", Target: TargetLease, Relation: Less, Number: -9},
		},
		Then: []Op{{Put: put}, {Delete: del}, {Range: read}, {Touch: &Touch{ID: 3, Token: 4}}},
		Else: []Op{{Txn: &Txn{Then: []Op{{Put: &Put{Key: "n", IgnoreValue: true}}}}}},
	}
	more := &Grant{Terms: lease.Terms{
		ID: 9, TTL: 1, LockDelay: 700, KeepKeys: true, Bound: true, Secret: lease.Secret{1, 31: 2},
	}}
	leases := &Txn{
		Compare: []Compare{
			{Target: TargetLeaseAlive, Number: 9},
			{Key: "n", Target: TargetNameToken, Relation: NotEqual, Number: -1},
		},
		Then: []Op{{Grant: more}, {Grant: &Grant{}}, {Revoke: &Revoke{ID: 9, Token: 1, By: "me"}}},
	}
	holds := &Grant{Terms: more.Terms, Holds: []keyrange.Range{
		{Key: "a", End: "b"}, {Key: "c"}, {Key: "d", End: "\x00"},
	}}
	leases.Else = []Op{{Grant: holds}, {Draw: true}}
	renews := &Grant{Terms: lease.Terms{ID: 1, TTL: 2, RequestID: "r"}, Renew: true}
	named := &Put{Key: "k", LeaseName: "n", LeaseToken: 8, PrevKV: true}
	return []Command{
		named, &Put{Key: "k", Lease: 3, LeaseToken: math.MaxUint64},
		&Revoke{Name: "n"}, &Revoke{ID: 9, Name: "n", Token: 5, By: "me"},
		&ChangeTTL{Name: "n", Token: 4, TTL: 77}, &HandOver{ID: 9, Name: "n", Token: 8, Owner: "o"},
		&Resume{Name: "n"}, &Once{Session: Session{ID: 8}, Number: 1, Command: named},
		&Txn{
			Compare: []Compare{{Key: "k", Target: TargetLeaseName, Value: []byte("n")}},
			Then:    []Op{{Put: named}, {Revoke: &Revoke{Name: "n"}}},
			Else:    []Op{{Touch: &Touch{ID: 3, Name: "n", Token: 4}}},
		},
		renews, &Grant{Terms: renews.Terms, Renew: true, Holds: holds.Holds},
		&Txn{Then: []Op{{Grant: renews}}}, holds, more, leases,
		&Revoke{ID: 9, Token: math.MaxUint64, By: "me"},
		&ChangeTTL{ID: 9, Token: math.MaxUint64, TTL: 77},
		&HandOver{ID: 9, Token: 8, Owner: "o", Secret: lease.Secret{3}},
		&Resume{ID: 9, Secret: lease.Secret{31: 4}},
		&DropOrphans{Tokens: []lease.Token{1, math.MaxUint64}}, &DropOrphans{},
		&Checkpoint{Term: 6, Leases: []lease.Checkpoint{{ID: 1, Token: 2, Remaining: 3, Stamp: 9}}},
		put, del, txn, &Txn{}, &Compact{Revision: math.MaxInt64},
		&Grant{Terms: lease.Terms{
			ID: math.MaxInt64, TTL: 5000, Name: "n", Owner: "o", RequestID: "r",
			Labels: map[string]string{"a": "1", "b": "2"},
		}},
		&Revoke{ID: 1}, &Grant{Terms: lease.Terms{ID: 1, TTL: 1, Bound: true}},
		&Expire{Term: 5, Leases: []lease.Due{{ID: 1, Token: math.MaxUint64, Stamp: 3}}},
		&Checkpoint{Term: 6, Leases: []lease.Checkpoint{{ID: 1, Token: 2, Remaining: 3}}},
		&SetAlarm{Alarm: Alarm{Member: 9, Kind: Corrupt}, Off: true},
		&SetMember{Member: Member{
			ID: 1, Name: "m", PeerURLs: []string{"p"}, ClientURLs: []string{"c", "d"}, Learner: true,
		}},
		&SetMember{Member: Member{ID: 1, Incarnation: math.MaxUint64}},
		&AddMember{Member: Member{ID: math.MaxUint64, PeerURLs: []string{"p"}, Learner: true}},
		&RemoveMember{ID: math.MaxUint64},
		&PromoteMember{ID: 7},
		&SetVersion{Version: 1},
		&SetVersion{Version: 200, Hold: true},
		&OpenSession{Nonce: math.MaxUint64},
		&Once{Session: Session{ID: 8, Nonce: 9}, Number: 10, Settled: 9, Command: txn},
		&By{access.Caller{User: "u", Revision: math.MaxUint64}, txn},
		&By{access.Caller{User: "p", Revision: 7, Bound: &access.Bound{Roles: []string{"r", ""}}}, txn},
		&By{access.Caller{User: "p", Revision: 7, Bound: &access.Bound{}}, &UserDelete{"u"}},
		&By{Command: &Once{Session: Session{ID: 8}, Number: 1, Command: named}},
		&By{Command: &UserDelete{"u"}}, &AuthEnable{}, &AuthDisable{},
		&UserAdd{Name: "u", Hash: []byte("h")}, &UserAdd{Name: "u", NoPassword: true},
		&UserDelete{"u"}, &UserPassword{"u", []byte("h")}, &UserGrantRole{"u", "r"},
		&UserRevokeRole{"u", "r"}, &RoleAdd{"r"}, &RoleDelete{"r"},
		&RoleGrant{"r", access.Permission{Kind: access.ReadWrite, Key: "k", End: "\x00"}},
		&RoleRevoke{Role: "r", Key: "k", End: "\x00"},
		&RoleGrant{"r", access.Permission{Kind: access.Manage, Key: "n"}},
		&RoleRevoke{Role: "r", Key: "n", Names: true}, &HandOver{ID: 1, Token: 2, Principal: "u"},
		&Grant{Terms: lease.Terms{ID: 1, TTL: 2, Principal: "u"}},
		&SetLimits{access.Holder{Kind: access.OfRole, Name: "r"}, []access.LimitChange{
			{What: access.Rate, Most: math.MaxInt64}, {What: access.Leases, Most: access.NoLimit},
		}},
		&HashState{}, &StateHash{Member: math.MaxUint64, Index: 5, Hash: math.MaxUint32},
		&Txn{Then: []Op{
			{Range: &Range{Options: mvcc.RangeOptions{MinModRevision: 1}}},
			{Range: &Range{Options: mvcc.RangeOptions{MaxModRevision: 1}}},
			{Range: &Range{Options: mvcc.RangeOptions{MinCreateRevision: 1}}},
			{Range: &Range{Options: mvcc.RangeOptions{MaxCreateRevision: 1}}},
		}},
	}
}

func encode(commands ...Command) []byte {
	b := AppendEntry(nil, 1)
	for _, c := range commands {
		b = AppendCommand(b, c)
	}
	return b
}

// TestRandomRoundTrip checks that random commands, and the results that sessions record for them,
// survive encoding and decoding.
func TestRandomRoundTrip(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 9))
		m := New(Config{})
		for range 40 {
			c := randomCommand(rng)
			x := command("", c)
			got, err := x.read(x.bytes)
			if err != nil || !reflect.DeepEqual(got, c) || !Readable(c) {
				t.Fatalf("seed %d: %#v became %#v, %v", seed, c, got, err)
			}
			r := apply(t, m, c)
			if !c.kind().repeatable() || !storable(r.Err) {
				continue
			}
			x = result("", r)
			if got, err := x.read(x.bytes); err != nil || !reflect.DeepEqual(got, r) {
				t.Fatalf("seed %d: %#v became %#v, %v", seed, r, got, err)
			}
		}
	}
}

// TestEncodingIsDeterministic checks that equal commands are encoded to equal bytes, regardless of
// map iteration order (S3, T11).
func TestEncodingIsDeterministic(t *testing.T) {
	labels := make(map[string]string)
	for i := range 50 {
		labels[string(rune('a'+i))] = "x"
	}
	c := &Grant{Terms: lease.Terms{ID: 1, Labels: labels}}
	want := encode(c)
	for range 20 {
		if !bytes.Equal(encode(c), want) {
			t.Fatal("the encoding of a map depends on its order")
		}
	}
}

// TestTooDeep checks that a transaction that is not TooDeep can be decoded from the log, and its
// result from a snapshot.
func TestTooDeep(t *testing.T) {
	txn := &Txn{Then: []Op{{Put: &Put{Key: "k"}}}}
	for level := range maxTxnDepth + 3 {
		_, err := DecodeEntry(encode(txn))
		deep := txn.TooDeep()
		if deep != (level > maxTxnDepth) || deep != (err != nil) || deep == Readable(txn) {
			t.Fatalf("level %d: %v, %v", level, deep, err)
		}
		if err == nil {
			m := New(Config{})
			mustApply(t, m, &Once{open(t, m, 5), 1, 0, txn})
			restored(t, m)
		}
		txn = &Txn{Else: []Op{{Txn: txn}}, Compare: []Compare{{Key: "x", Number: 1}}}
	}
}

// FuzzDecodeEntry decodes arbitrary bytes, as if from disk or network. Decoding must not panic, and
// a decoded entry must survive a round trip.
func FuzzDecodeEntry(f *testing.F) {
	for _, c := range samples() {
		f.Add(encode(c))
	}
	f.Add(encode(samples()...))
	f.Add(AppendCommand(AppendGroup(encode(samples()...), Origin{1, 2}, 1), &Revoke{}))
	f.Fuzz(func(t *testing.T, data []byte) {
		groups, err := DecodeEntry(data)
		if err != nil {
			return
		}
		again, err := DecodeEntry(appendGroups(groups))
		if err != nil {
			t.Fatalf("own encoding does not decode: %v", err)
		}
		if len(groups) != len(again) ||
			len(again) > 0 && !reflect.DeepEqual(nonNil(groups), nonNil(again)) {
			t.Fatalf("decoded %#v, then %#v", groups, again)
		}
	})
}

// appendGroups encodes the groups returned by DecodeEntry.
func appendGroups(groups []Group) []byte {
	b := AppendEntry(nil, 1)
	for _, g := range groups {
		b = AppendGroup(b, g.Origin, len(g.Commands))
		for _, c := range g.Commands {
			b = AppendCommand(b, c)
		}
	}
	return b
}

// nonNil replaces nil command lists with empty ones, so that groups can be compared.
func nonNil(groups []Group) []Group {
	for i := range groups {
		if len(groups[i].Commands) == 0 {
			groups[i].Commands = []Command{}
		}
	}
	return groups
}

// forwarded returns an entry with commands that a member forwards to the leader.
func forwarded(commands []Command) []byte {
	b := AppendGroup(AppendEntry(nil, 1), Origin{}, len(commands))
	for _, c := range commands {
		b = AppendCommand(b, c)
	}
	return b
}

// FuzzDecodeCommands decodes arbitrary bytes, as if another member had sent them to the leader.
// Decoding must not panic, and it must be possible to propose the decoded commands.
func FuzzDecodeCommands(f *testing.F) {
	f.Add(forwarded(samples()))
	f.Fuzz(func(t *testing.T, data []byte) {
		commands, err := DecodeCommands(data)
		if err != nil {
			return
		}
		for _, c := range commands {
			if !Readable(c) {
				t.Fatalf("%#v is not readable", c)
			}
		}
		again, err := DecodeCommands(forwarded(commands))
		if err != nil || !reflect.DeepEqual(again, commands) {
			t.Fatalf("decoded %#v, then %#v, %v", commands, again, err)
		}
	})
}

// FuzzRestore restores damaged snapshots. This must not panic, and a state that was restored must
// survive another snapshot.
func FuzzRestore(f *testing.F) {
	m := New(Config{})
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		m.Begin(uint64(i+1), 1)
		m.Apply(randomCommand(rng))
	}
	var whole []byte
	for _, chunk := range chunks(f, m) {
		whole = append(whole, chunk...)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(bytes.Join(chunks(f, everything(f)), nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := restoreChunks(Config{}, data)
		if err != nil {
			return
		}
		m.mustBeSound()
		again, err := restoreChunks(Config{}, bytes.Join(chunks(t, m), nil))
		if err != nil || hash(t, again) != hash(t, m) {
			t.Fatalf("restored, and not again: %v", err)
		}
	})
}
