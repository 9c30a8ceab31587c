package fsm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
	"leasehold.dev/test/tier"
)

// crowded returns a state that cannot grow, because of the quota or the alarm. It has leases, keys,
// and a session in which number 1 has been used.
func crowded(t *testing.T, alarm bool) (*Machine, Session) {
	m := New(Config{})
	m.AddMember(Member{ID: 1})
	mustApply(t, m, &UserAdd{Name: "user", Hash: make([]byte, 60)})
	mustApply(t, m, &RoleAdd{Name: "role"})
	s := open(t, m, 1)
	mustApply(t, m, &Once{s, 1, 0, &Put{Key: "once"}})
	for id := lease.ID(1); id < 7; id++ {
		terms := lease.Terms{
			ID: id, TTL: 5000, Name: fmt.Sprint("n", id), Owner: "owner", RequestID: "r",
			Secret: lease.Secret{1},
		}
		mustApply(t, m, &Grant{Terms: terms, Holds: []keyrange.Range{{Key: fmt.Sprint("h", id)}}})
		mustApply(t, m, &Put{Key: fmt.Sprint("on", id), Lease: id})
	}
	mustApply(t, m, &Grant{Terms: lease.Terms{ID: 8, TTL: 5000, Name: "n8", LockDelay: 1000}})
	expire(t, m, 8)
	mustApply(t, m, &Put{Key: "long", Value: make([]byte, 1000)})
	if alarm {
		mustApply(t, m, &SetAlarm{Alarm: Alarm{Member: 1, Kind: NoSpace}})
	} else {
		mustApply(t, m, &SetMember{Member{ID: 1, Quota: m.bytes().Sum()}})
	}
	return m, s
}

// limitsOf returns a command that sets limits for a user. If user is "", it sets the default
// limits.
func limitsOf(user string) *SetLimits {
	c := &SetLimits{List: []access.LimitChange{{What: access.Bytes, Most: 1}}}
	if user != "" {
		c.Of = access.Holder{Kind: access.OfUser, Name: user}
	}
	return c
}

// TestGrowthRefusedAtQuota checks that at the quota, or with the alarm raised, exactly those
// commands that would grow the state are rejected.
func TestGrowthRefusedAtQuota(t *testing.T) {
	granted := func(request string, renew bool) *Grant {
		return &Grant{Renew: renew, Terms: lease.Terms{
			ID: 1, TTL: 5000, Name: "n1", Owner: "owner", RequestID: request,
		}}
	}
	once := func(number uint64, c Command) func(Session) Command {
		return func(s Session) Command { return &Once{s, number, 0, c} }
	}
	plain := func(c Command) func(Session) Command { return once(0, c) }
	then := func(ops ...Op) func(Session) Command { return plain(&Txn{Then: ops}) }
	handOver := func(token lease.Token, owner string) func(Session) Command {
		return plain(&HandOver{ID: 1, Token: token, Owner: owner})
	}
	revoke := Op{Revoke: &Revoke{ID: 1}}
	fresh := &Grant{Terms: lease.Terms{ID: 9, TTL: 5000}}
	put, remove := &Put{Key: "k"}, &DeleteRange{Key: "long"}
	for name, tt := range map[string]struct {
		command func(Session) Command
		want    error
	}{
		"put":                     {plain(put), ErrNoSpace},
		"put less than there is":  {plain(&Put{Key: "long"}), ErrNoSpace},
		"keep the value":          {plain(&Put{Key: "long", IgnoreValue: true}), ErrNoSpace},
		"attach":                  {plain(&Put{Key: "long", IgnoreValue: true, Lease: 1}), ErrNoSpace},
		"put in a transaction":    {then(Op{Put: put}), ErrNoSpace},
		"put in a nested one":     {then(Op{Txn: &Txn{Then: []Op{{Put: put}}}}), ErrNoSpace},
		"put on no lease":         {then(Op{Put: &Put{Key: "k", Lease: 99}}), lease.ErrNotFound},
		"put of the other branch": {plain(&Txn{Else: []Op{{Put: put}}}), nil},
		"put and delete more":     {then(Op{Delete: remove}, Op{Put: put}), ErrNoSpace},
		"grant":                   {plain(fresh), ErrNoSpace},
		"grant that is there":     {plain(granted("other", false)), ErrNoSpace},
		"grant again":             {plain(granted("r", false)), nil},
		"grant again and renew":   {plain(granted("r", true)), nil},
		"grant in a transaction":  {then(Op{Grant: fresh}), ErrNoSpace},
		"grant again in one":      {then(Op{Grant: granted("r", true)}), nil},
		"revoke and grant":        {then(revoke, Op{Grant: granted("r", true)}), ErrNoSpace},
		"hand over":               {handOver(1, "other"), nil},
		"hand over to less":       {handOver(1, ""), nil},
		"hand over to more":       {handOver(1, "much longer"), ErrNoSpace},
		"hand over without right": {handOver(9, "much longer"), lease.ErrNotFound},
		"hand over what is not":   {plain(&HandOver{ID: 9, Owner: "longer"}), lease.ErrNotFound},
		"hand over what has ended": {
			plain(&HandOver{ID: 8, Token: 7, Owner: "longer"}), lease.ErrNotFound,
		},
		"resume":                     {plain(&Resume{ID: 1, Secret: lease.Secret{1}}), nil},
		"change the TTL":             {plain(&ChangeTTL{ID: 1, Token: 1, TTL: 6000}), nil},
		"renew":                      {then(Op{Touch: &Touch{ID: 1}}), nil},
		"draw a token":               {then(Op{Draw: true}), nil},
		"read":                       {then(Op{Range: &Range{Key: "k"}}), nil},
		"revoke":                     {plain(&Revoke{ID: 1}), nil},
		"revoke in a transaction":    {then(revoke), nil},
		"delete":                     {plain(remove), nil},
		"delete a range":             {plain(&DeleteRange{Key: "\x00", End: "\x00"}), nil},
		"delete in a transaction":    {then(Op{Delete: remove}), nil},
		"compact":                    {plain(&Compact{Revision: 3}), nil},
		"open a session":             {plain(&OpenSession{Nonce: 2}), nil},
		"a number that was done":     {once(1, &Put{Key: "once"}), nil},
		"a number that was not done": {once(2, put), ErrNoSpace},
		"a number that frees":        {once(2, remove), nil},
		"lower the alarm":            {plain(&SetAlarm{Alarm: Alarm{1, NoSpace}, Off: true}), nil},
		"add a user":                 {plain(&UserAdd{Name: "u", NoPassword: true}), ErrNoSpace},
		"give a role":                {plain(&UserGrantRole{"user", "role"}), ErrNoSpace},
		"change a password":          {plain(&UserPassword{"user", make([]byte, 60)}), nil},
		"change it to more":          {plain(&UserPassword{"user", make([]byte, 61)}), ErrNoSpace},
		"delete a user":              {plain(&UserDelete{"user"}), nil},
		"set limits":                 {plain(limitsOf("user")), nil},
		"set limits of everybody":    {plain(limitsOf("")), nil},
		"update a member":            {plain(&SetMember{Member{ID: 1, ClientURLs: []string{"c"}}}), nil},
		"expire": {plain(&Expire{Term: 1, Leases: []lease.Due{{
			ID: 1, Token: 1, Stamp: 1,
		}}}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, alarm := range []bool{true, false} {
				m, s := crowded(t, alarm)
				c := tt.command(s)
				if o, ok := c.(*Once); ok && o.Number == 0 {
					c = o.Command
				}
				if m.View().Refuses(c) && tt.want != ErrNoSpace { //nolint:errorlint
					t.Errorf("alarm %v: refused before it is looked at", alarm)
				}
				before := m.bytes().Sum()
				if r := apply(t, m, c); !errors.Is(r.Err, tt.want) {
					t.Errorf("alarm %v: %v, want %v", alarm, r.Err, tt.want)
				}
				if more := m.bytes().Sum() - before; tt.want != nil && more > answerBytes {
					t.Errorf("alarm %v: refused, with %d bytes more", alarm, more)
				}
			}
		})
	}
}

// TestQuotaIsKept checks that nothing but tombstones, sessions, recorded responses, members and
// alarms can take the state above the quota. A restored member makes the same decisions. The quota
// changes at random.
func TestQuotaIsKept(t *testing.T) {
	refused, done := 0, 0
	for seed := range uint64(tier.Budget(15, 40)) {
		rng := rand.New(rand.NewPCG(seed, 9))
		a, b := small(New(Config{})), small(New(Config{}))
		for _, m := range []*Machine{a, b} {
			m.AddMember(Member{ID: 99, Quota: 5000 + 1000*int64(seed%8)})
		}
		for i := range uint64(400) {
			c := randomChange(rng, i+1)
			now(rng, a, c)
			if rng.IntN(50) == 0 {
				c = &SetMember{Member{ID: 99, Quota: 2000 + int64(rng.IntN(10_000))}}
			}
			before, head := a.bytes(), a.store.Compacted() == a.store.Revision()
			r, other := apply(t, a, c), apply(t, b, c)
			if fmt.Sprint(r.Err) != fmt.Sprint(other.Err) || a.bytes() != b.bytes() {
				t.Fatalf("seed %d: %#v: %+v and %+v", seed, c, r, other)
			}
			after, deleted := a.bytes(), deletions(a)
			grown := after.Keys + after.Leases - before.Keys - before.Leases
			switch Inner(c).(type) {
			case *Put, *Grant, *HandOver, *Txn:
				sum := after.Sum()
				if Inner(c) != c {
					sum -= resultSize(&r)
				}
				if grown > 0 && deleted == 0 && !head && sum > a.meta.quota {
					t.Fatalf("seed %d: %#v: %+v, then %+v", seed, c, before, after)
				}
			default:
				if grown > deleted*recordAlone && !head {
					t.Fatalf("seed %d: %#v: %d bytes more", seed, c, grown)
				}
			}
			if errors.Is(r.Err, ErrNoSpace) {
				refused++
			} else if grown > 0 {
				done++
			}
			if rng.IntN(40) == 0 {
				b = restored(t, b)
				b.sessions.limits = a.sessions.limits
			}
		}
	}
	if refused < 150 || done < 150 {
		t.Errorf("%d commands were refused, %d let the state grow: too few", refused, done)
	}
}

// deletions returns how many keys have been deleted since the last call.
func deletions(m *Machine) (n int64) {
	for _, c := range m.TakeChanges() {
		for _, e := range c.Events {
			if e.Delete {
				n++
			}
		}
	}
	return n
}

// TestKeepKeysDoesNotGrowState checks that the state does not grow when a lease that keeps its keys
// ends.
func TestKeepKeysDoesNotGrowState(t *testing.T) {
	for _, size := range []int{0, 1, 24, mvcc.ShortValue, mvcc.ShortValue + 1, 5000} {
		m := New(Config{})
		const quota = 200_000
		m.AddMember(Member{ID: 1, Quota: quota})
		mustApply(t, m, &Grant{Terms: lease.Terms{ID: 1, TTL: 5000, KeepKeys: true}})
		n := 0
		for {
			r := apply(t, m, &Put{Key: fmt.Sprint(n), Value: make([]byte, size), Lease: 1})
			if errors.Is(r.Err, ErrNoSpace) {
				break
			}
			n++
		}
		before := m.bytes().Sum()
		mustApply(t, m, &Expire{Term: 1, Leases: []lease.Due{{ID: 1, Token: 1, Stamp: 1}}})
		after := m.bytes().Sum()
		kv := m.store.Get("0")
		if kv == nil || kv.Lease != 0 || kv.Version != 2 || len(kv.Value) != size {
			t.Fatalf("values of %d bytes: %+v", size, kv)
		}
		if after > before || before > quota {
			t.Errorf("%d values of %d bytes: %d bytes, then %d", n, size, before, after)
		}
		if sum := restored(t, m).bytes().Sum(); sum != after {
			t.Errorf("values of %d bytes: %d bytes after a restart, %d before", size, sum, after)
		}
	}
}

// TestSessionsLeaveRoom checks that sessions of clients that have disappeared do not fill up the
// state.
func TestSessionsLeaveRoom(t *testing.T) {
	for _, quota := range []int64{MinQuota, 100_000, 1 << 20, 16 << 20}[:tier.Budget(3, 4)] {
		m := New(Config{})
		m.AddMember(Member{ID: 1, Quota: quota})
		mustApply(t, m, &Put{Key: "k", Value: []byte(strings.Repeat("v", 200))})
		for i := range uint64(tier.Budget(5000, 20_000)) {
			s := open(t, m, i)
			mustApply(t, m, &Once{s, 1, 0, &Txn{Then: []Op{{Range: &Range{Key: "k"}}}}})
		}
		if b := m.bytes(); b.Sessions > quota/4 || quota > 1<<20 && b.Sessions > quota/12 {
			t.Errorf("sessions take %d of %d bytes", b.Sessions, quota)
		} else if b.Sessions < quota/64 {
			t.Errorf("sessions take %d bytes of %d: the test is of no use", b.Sessions, quota)
		}
	}
}

// TestExactQuota checks that a command succeeds if it just fits, and is rejected if the quota is
// one byte lower.
func TestExactQuota(t *testing.T) {
	const value = "twelve bytes"
	on := int64(lease.AttachBytes + lease.KeepBytes)
	again := mvcc.PutSize("key", nil) + mvcc.KeepSize + int64(len(value))
	terms := lease.Terms{ID: 2, TTL: 5000, Name: "name"}
	put := func(c Put) Command { return &c }
	new_, other := Op{Put: &Put{Key: "new"}}, mvcc.PutSize("new", nil)
	keep := Op{Put: &Put{Key: "key", IgnoreValue: true}}
	bring := &Put{Key: "key", Value: []byte(value)}
	for name, c := range map[string]struct {
		c    Command
		need int64
	}{
		"put":              {new_.Put, other},
		"put on a lease":   {put(Put{Key: "new", Lease: 1}), other + on},
		"keep a value":     {keep.Put, again},
		"bring a value":    {bring, mvcc.PutSize("key", bring.Value)},
		"keep nothing":     {&Txn{Then: []Op{new_, keep}}, other + again},
		"grant":            {&Grant{Terms: terms}, terms.Bytes()},
		"hand over":        {&HandOver{ID: 1, Token: 1, Owner: "somebody"}, 5},
		"the other branch": {&Txn{Then: []Op{new_}, Else: []Op{new_, new_}}, other},
	} {
		for less := range int64(2) {
			m := New(Config{})
			m.AddMember(Member{ID: 1})
			mustApply(t, m, &Grant{Terms: lease.Terms{ID: 1, TTL: 5000, Owner: "any"}})
			mustApply(t, m, &Put{Key: "key", Value: []byte(value)})
			mustApply(t, m, &SetMember{Member{ID: 1, Quota: m.bytes().Sum() + c.need - less}})
			r := apply(t, m, c.c)
			if errors.Is(r.Err, ErrNoSpace) != (less > 0) || r.Err != nil && less == 0 {
				t.Errorf("%s, with %d bytes less: %v", name, less, r.Err)
			}
		}
	}
}

// TestRefuses checks that a command is rejected early only if it is certain to be rejected because
// of the space alarm. Retried commands are never rejected early.
func TestRefuses(t *testing.T) {
	m := New(Config{})
	grant, again := &Grant{}, &Grant{Terms: lease.Terms{RequestID: "r"}}
	for _, kind := range []AlarmKind{0, Corrupt, NoSpace} {
		if kind != 0 {
			mustApply(t, m, &SetAlarm{Alarm: Alarm{Member: 9, Kind: kind}})
		}
		v := m.View()
		if v.Full() != (kind == NoSpace) {
			t.Errorf("alarm %d: full %v", kind, v.Full())
		}
		for c, want := range map[Command]bool{
			&Put{}: true, &By{Command: &Put{}}: true, grant: true, again: false, &Txn{}: false,
			&DeleteRange{}: false,
		} {
			if got := v.Refuses(c); got != (want && v.Full()) {
				t.Errorf("alarm %d: %T is refused: %v", kind, c, got)
			}
		}
	}
}

// TestLeastQuota checks that the smallest of all members' quotas applies.
func TestLeastQuota(t *testing.T) {
	m := New(Config{})
	for id, quota := range []int64{7, 0, 5, 9, 5, 6} {
		m.AddMember(Member{ID: uint64(id), Quota: quota})
	}
	for range 100 { // map iteration order is random
		if got := m.leastQuota(); got != 5 {
			t.Fatalf("quota %d", got)
		}
	}
}
