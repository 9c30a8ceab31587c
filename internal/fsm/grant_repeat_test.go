package fsm

import (
	"reflect"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// TestRepeatable checks that a repeatable grant takes effect once, along with its puts. A retry
// returns its lease, and Repeated recognizes the retry before it is applied.
func TestRepeatable(t *testing.T) {
	puts := []*Put{{Key: "a", Lease: 1}, {Key: "b", Lease: 1}}
	for _, name := range []string{"", "n"} {
		for n := range 3 {
			m := New(Config{})
			grant := &Grant{Terms: lease.Terms{ID: 1, TTL: 5000, Name: name, RequestID: "r"}}
			c := grant.Repeatable(puts[:n]...)
			if grant.Renew {
				t.Error("the grant itself has changed")
			}
			groups, err := DecodeEntry(encode(c)) // as decoded by another member
			if err != nil {
				t.Fatal(err)
			}
			c = groups[0].Commands[0]
			if _, done := m.Repeated(c); done || !MayBeRepeated(c) || !MayBeRepeated(&By{Command: c}) {
				t.Errorf("%q, %d puts: done %v, and it may be", name, n, done)
			}
			mustApply(t, m, c)
			if got := m.lessor.KeyCount(1); got != n {
				t.Errorf("%q: %d keys of %d", name, got, n)
			}
			foreseen, done := m.Repeated(c)
			second := apply(t, m, c)
			if !done || !foreseen.Repeated || !reflect.DeepEqual(shape(foreseen), shape(second)) {
				t.Errorf("%q, %d puts: %+v, and then %+v", name, n, foreseen, second)
			}
			other := *grant
			other.Terms.RequestID, other.Terms.ID = "s", lease.ID(1+len(name))
			if _, done := m.Repeated(other.Repeatable(puts[:n]...)); done {
				t.Errorf("%q, %d puts: the request of another", name, n)
			}
		}
	}
	if c, ok := (&Grant{}).Repeatable().(*Grant); !ok || !c.Renew {
		t.Errorf("without puts it is %+v", c)
	}
	of := func(c Command) any { return c.(*Txn).Compare }
	alive := Compare{Target: TargetLeaseAlive, Relation: NotEqual, Number: 1}
	free := Compare{Target: TargetNameToken, Key: "n"}
	for name, want := range map[string][]Compare{"": {alive}, "n": {alive, free}} {
		c := (&Grant{Terms: lease.Terms{ID: 1, Name: name}}).Repeatable(puts...)
		if !reflect.DeepEqual(of(c), want) {
			t.Errorf("%q: conditions %+v, want %+v", name, of(c), want)
		}
	}
}

// shape returns the parts of a result that a retry must repeat. Other parts change because the
// retry renews the lease.
func shape(r Result) []any {
	v := r.Value
	if txn, ok := v.(*TxnResult); ok {
		v = txn.Responses[0]
	}
	info, existed := GrantResult(v)
	return []any{r.Revision, r.Err, reflect.TypeOf(r.Value), info.ID, info.Token, existed}
}

// TestMayBeRepeated checks that only commands with a number or a request ID can be recognized as
// retries.
func TestMayBeRepeated(t *testing.T) {
	m := New(Config{})
	terms := lease.Terms{ID: 1, TTL: 5000, RequestID: "r"}
	grant(t, m, 2)
	mustApply(t, m, &Grant{Terms: terms, Renew: true})
	own, other := &Grant{Terms: terms}, &Grant{Terms: terms}
	renews := &Grant{Terms: terms, Renew: true}
	puts := renews.Repeatable(&Put{Key: "a"}).(*Txn)
	for c, want := range map[Command]bool{
		&Put{}: false, own: false, &Grant{Terms: lease.Terms{ID: 2}, Renew: true}: false,
		&Grant{Terms: terms, Renew: true}: true, &Once{Command: &Put{}}: true,
		&By{Command: &Once{Command: &Put{}}}: true, &By{Command: own}: false, &Txn{}: false,
		&Txn{Then: []Op{{Grant: own}}}:                               false,
		&Txn{Else: []Op{{Grant: own}}}:                               false,
		&Txn{Then: []Op{{Grant: own}}, Else: []Op{{Grant: other}}}:   false,
		&Txn{Then: []Op{{Grant: own}}, Else: []Op{{Grant: own}, {}}}: false,
		// no conditions
		&Txn{Then: []Op{{Grant: renews}}, Else: []Op{{Grant: renews}}}:           false,
		&Txn{Compare: puts.Compare, Then: []Op{{Draw: true}}, Else: puts.Else}:   false,
		&Txn{Compare: puts.Compare, Then: puts.Then, Else: []Op{{Grant: other}}}: false,
		&Txn{Compare: puts.Compare, Then: puts.Then, Else: puts.Else}:            true,
		&Txn{Then: []Op{{Draw: true}}, Else: []Op{{Put: &Put{Key: "a"}}}}:        false,
	} {
		if got := MayBeRepeated(c); got != want {
			t.Errorf("%T %+v may be repeated: %v", c, c, got)
		}
		if _, done := m.Repeated(c); done && !want {
			t.Errorf("%T %+v was repeated", c, c)
		}
	}
}

// TestRepeatedWithoutPermission checks that a user who has lost permission to issue a command does
// not receive its recorded response.
func TestRepeatedWithoutPermission(t *testing.T) {
	m := tenants(t)
	s := mustApply(t, m, as(m, "alice", &OpenSession{Nonce: 1})).(Session)
	put := &Once{Session: s, Number: 1, Command: &Put{Key: "a"}}
	mustApply(t, m, as(m, "alice", put))
	mustApply(t, m, as(m, "root", &UserRevokeRole{"alice", "a"}))
	if r, done := m.Repeated(as(m, "alice", put)); done {
		t.Errorf("alice is told %+v", r)
	}
}

// TestFits checks that a value is accepted as the result of a command only if the command can
// return it.
func TestFits(t *testing.T) {
	put, compared := []Op{{Put: &Put{}}}, []Compare{{}}
	done := &PutResult{}
	for _, x := range []struct {
		c    Command
		v    any
		want bool
	}{
		{&OpenSession{}, Session{}, true},
		{&OpenSession{}, nil, false},
		{&SetAlarm{}, []Alarm(nil), true},
		{&SetAlarm{}, nil, false},
		{&Compact{}, nil, true},
		{&Compact{}, done, false},
		{&Put{}, done, true},
		{&Put{}, nil, false},
		{&Grant{}, &lease.Info{}, true},
		{&Grant{}, &Existing{}, true},
		{&Grant{}, done, false},
		{&Txn{Then: put}, &TxnResult{Succeeded: true, Responses: []any{done}}, true},
		{&Txn{Then: put}, &TxnResult{}, false},
		{&Txn{Then: put, Compare: compared}, &TxnResult{}, true},
		{&Txn{Then: put}, &TxnResult{Succeeded: true}, false},
		{&Txn{Then: put}, done, false},
	} {
		if got := Fits(x.c, x.v); got != x.want {
			t.Errorf("%T, %+v: %v", x.c, x.v, got)
		}
	}
	if info, existed := GrantResult(done); info != nil || existed {
		t.Errorf("%+v, %v of a put", info, existed)
	}
}

// TestReadable checks that a command that members could not decode from the log is not proposed,
// even if it is nested.
func TestReadable(t *testing.T) {
	sorted := func(by mvcc.SortBy) Op {
		return Op{Range: &Range{Options: mvcc.RangeOptions{SortBy: by}}}
	}
	for name, c := range map[string]Command{
		"target":          &Txn{Compare: []Compare{{}, {Target: TargetLease + 1}}},
		"relation":        &Txn{Compare: []Compare{{Relation: NotEqual + 1}}},
		"order":           &Txn{Else: []Op{sorted(mvcc.ByValue + 1)}},
		"order below":     &Txn{Then: []Op{sorted(-1)}},
		"nothing":         &Txn{Then: []Op{{Draw: true}, {}}},
		"alarm":           &SetAlarm{Alarm: Alarm{Kind: Split + 1}},
		"alarm of states": &SetAlarm{Alarm: Alarm{Kind: Split}},
		"permission":      &RoleGrant{Permission: access.Permission{Kind: 255}},
	} {
		once := &Once{Command: c}
		for _, c := range []Command{
			c, &By{Command: c}, once, &By{Command: once}, &Txn{Else: []Op{{Txn: nestable(c)}}},
		} {
			if Readable(c) {
				t.Errorf("%s in a %T can be read", name, c)
			}
		}
	}
	for _, c := range append(samples(), &Txn{Then: []Op{sorted(0), sorted(mvcc.ByValue)}}) {
		if _, err := DecodeEntry(encode(c)); (err == nil) != Readable(c) {
			t.Errorf("%T %+v can be read: %v, error %v", c, c, Readable(c), err)
		}
	}
}

// nestable returns a transaction that can be decoded only if c can.
func nestable(c Command) *Txn {
	if txn, ok := c.(*Txn); ok {
		return txn
	}
	return &Txn{Then: []Op{{}}}
}
