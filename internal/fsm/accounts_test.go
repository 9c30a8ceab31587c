package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
	"leasehold.dev/test/tier"
)

// ledger is a model of the accounts. It tracks which principal is charged for each version of a key
// and for each lease. It relies only on the effects of commands, not on how they are implemented.
type ledger struct {
	versions map[mvcc.Revision]string
	newest   map[string]mvcc.Record
	leases   map[lease.ID]leaseOf
}

type leaseOf struct {
	who  string
	info lease.Info
}

// follow records the effects of a principal's command.
func (l *ledger) follow(m *Machine, who string, c Command) {
	versions, newest := make(map[mvcc.Revision]string), make(map[string]mvcc.Record)
	_, expires := Inner(c).(*Expire)
	for r := range m.store.View().Records() {
		at := mvcc.Revision{Main: r.ModRevision, Sub: r.Sub}
		of, known := l.versions[at]
		if !known {
			of = who
			if before, ok := newest[r.Key]; ok && (expires || r.Tombstone) {
				of = versions[mvcc.Revision{Main: before.ModRevision, Sub: before.Sub}]
			}
		}
		versions[at], newest[r.Key] = of, r
	}
	leases := make(map[lease.ID]leaseOf)
	for info := range m.lessor.Leases() {
		of, known := l.leases[info.ID]
		_, grants := Inner(c).(*Grant)
		_, inTxn := Inner(c).(*Txn)
		switch fresh := !known || of.info.Token != info.Token; {
		case fresh && (grants || inTxn):
			of.who = who
			if info.Principal != "" {
				of.who = info.Principal
			}
		case of.info.Principal != info.Principal:
			of.who = info.Principal
		}
		leases[info.ID] = leaseOf{of.who, info}
	}
	l.versions, l.newest, l.leases = versions, newest, leases
}

// check compares the writer of each version with the model.
func (l *ledger) check(m *Machine) error {
	for r := range m.store.View().Records() {
		if who := l.versions[mvcc.Revision{Main: r.ModRevision, Sub: r.Sub}]; who != r.WrittenFor {
			return fmt.Errorf("%q at %d is written for %q, want %q", r.Key, r.ModRevision,
				r.WrittenFor, who)
		}
	}
	return m.store.CheckInvariants() // this also verifies the size of each writer's versions
}

// uses returns how much each principal uses according to the model. The size of versions is taken
// from the store, and check verifies it.
func (l *ledger) uses(m *Machine) map[string]Use {
	out := make(map[string]Use)
	for _, x := range l.leases {
		u := out[x.who]
		u.Leases++
		u.Bytes += x.info.Bytes()
		out[x.who] = u
	}
	for _, r := range l.newest {
		if r.Lease != 0 && !r.Tombstone {
			who := l.versions[mvcc.Revision{Main: r.ModRevision, Sub: r.Sub}]
			u := out[who]
			u.LeaseKeys++
			out[who] = u
		}
	}
	for w := range m.store.Writers() {
		u := out[w.Name]
		u.Bytes += w.Bytes
		out[w.Name] = u
	}
	delete(out, "")
	return out
}

func usesOf(m *Machine) map[string]Use {
	out := make(map[string]Use)
	for u := range m.Uses() {
		name := u.Principal
		u.Principal = ""
		out[name] = u
	}
	return out
}

// limitedTenants returns a machine with users that have permission for all keys and names, and
// limits low enough to be reached.
func limitedTenants(t *testing.T, rng *rand.Rand) *Machine {
	m := New(Config{})
	for _, c := range []Command{
		&UserAdd{Name: "root", NoPassword: true}, &UserGrantRole{"root", "root"},
		&RoleAdd{"all"}, &RoleGrant{"all", access.Permission{
			Kind: access.ReadWrite, Key: "\x00", End: "\x00",
		}},
		&RoleGrant{"all", access.Permission{Kind: access.Manage, Key: "\x00", End: "\x00"}},
		&UserAdd{Name: "alice", NoPassword: true}, &UserGrantRole{"alice", "all"},
		&UserAdd{Name: "bob", NoPassword: true}, &UserGrantRole{"bob", "all"},
		&SetLimits{access.Holder{Kind: access.OfUser, Name: "alice"}, drawLimits(rng)},
		&SetLimits{access.Holder{Kind: access.OfRole, Name: "all"}, drawLimits(rng)},
		&AuthEnable{},
	} {
		mustApply(t, m, c)
	}
	return m
}

func drawLimits(rng *rand.Rand) []access.LimitChange {
	return []access.LimitChange{
		{What: access.Leases, Most: int64(rng.IntN(4))},
		{What: access.LeaseKeys, Most: int64(rng.IntN(4))},
		{What: access.Bytes, Most: int64(rng.IntN(4) * 1000)},
	}
}

var tenantNames = []string{"root", "alice", "bob", "corp:eve"}

// drawTenant attributes a command to a random principal. Grants and hand-overs also get a random
// principal.
func drawTenant(rng *rand.Rand, m *Machine, c Command) (string, Command) {
	switch c := c.(type) {
	case *Grant:
		c.Terms.Principal = append(tenantNames, "", "")[rng.IntN(6)]
	case *HandOver:
		c.Principal = append(tenantNames, "", "")[rng.IntN(6)]
	case *Txn:
		for _, op := range c.Then {
			if op.Grant != nil {
				op.Grant.Terms.Principal = append(tenantNames, "", "")[rng.IntN(6)]
			}
		}
	}
	who := tenantNames[rng.IntN(len(tenantNames))]
	switch {
	case !c.kind().forClients():
		return "", c
	case who == "corp:eve":
		return who, &By{access.Caller{
			User: who, Revision: m.meta.access.Revision(), Bound: &access.Bound{Roles: []string{"all"}},
		}, c}
	}
	return who, as(m, who, c)
}

// unlimited returns a copy of the state without limits.
func unlimited(t *testing.T, m *Machine) *Machine {
	m = restored(t, m)
	for _, of := range m.meta.access.LimitHolders() {
		l := m.meta.access.Limits(of)
		list := l.Changes()
		for i := range list {
			list[i].Most = 0
		}
		m.meta.access, _ = m.meta.access.SetLimits(of, list)
	}
	return m
}

// TestAccountsAgainstModel checks that each principal's usage is counted exactly, even after a
// snapshot and a compaction. No principal exceeds a limit, and no command within the limits is
// rejected.
//
// The test runs random commands of four principals under random limits, and compares the counts
// with a model that examines all versions and leases. A rejected command is applied to a copy
// without limits, where it must exceed a limit. Ranges are deleted ahead of their entry, one key at
// a time.
func TestAccountsAgainstModel(t *testing.T) {
	refusals, parts := 0, 0
	for seed := range uint64(tier.Budget(20, 60)) {
		rng := rand.New(rand.NewPCG(seed, 5))
		m := limitedTenants(t, rng)
		m.Lessor().Promote(0)
		var model ledger
		for i := range 200 {
			plain := randomCommand(rng)
			if rng.IntN(12) == 0 {
				plain = &DeleteRange{Key: string(rune('a' + rng.IntN(8))), End: "i"}
			}
			now(rng, m, plain)
			who, c := drawTenant(rng, m, plain)
			before, state := usesOf(m), hash(t, m)
			for m.cfg.AheadKeys = 1; m.Ahead(c); {
				parts++
				if hash(t, m) != state {
					t.Fatalf("seed %d, step %d: a part of %#v is seen", seed, i, plain)
				}
			}
			r := apply(t, m, c)
			model.follow(m, who, c)
			if err := model.check(m); err != nil {
				t.Fatalf("seed %d, step %d: %#v by %s: %v", seed, i, plain, who, err)
			}
			if want, got := model.uses(m), usesOf(m); !maps.Equal(want, got) {
				t.Fatalf("seed %d, step %d: %#v by %s: %v\nuses are %v,\nwant    %v", seed, i, plain, who,
					r.Err, got, want)
			}
			limit := new(access.LimitError)
			switch {
			case errors.As(r.Err, &limit):
				refusals++
				if hash(t, m) != state {
					t.Fatalf("seed %d: %#v was refused and changed something", seed, plain)
				}
				checkRefused(t, m, c, limit)
			default:
				checkWithin(t, m, who, c, before)
			}
			if rng.IntN(15) == 0 {
				_ = m.store.Compact(m.store.Revision() - int64(rng.IntN(5)))
				model.follow(m, "", plain)
			}
			if rng.IntN(20) == 0 {
				m = restored(t, m)
				m.Lessor().Promote(0)
			}
			if rng.IntN(40) == 0 {
				of := access.Holder{Kind: access.OfUser, Name: "alice"}
				mustApply(t, m, as(m, "root", &SetLimits{of, drawLimits(rng)}))
			}
		}
	}
	if refusals < 50 {
		t.Errorf("only %d refusals", refusals)
	}
	if parts < 50 {
		t.Errorf("only %d parts were deleted ahead", parts)
	}
}

// caller returns the caller with the given name.
func caller(name string) access.Caller {
	if name == "corp:eve" {
		return access.Caller{User: name, Bound: &access.Bound{Roles: []string{"all"}}}
	}
	return access.Caller{User: name}
}

// checkWithin checks that no principal exceeds its limits after a command. Tombstones, and keys
// that outlive their lease, are exempt. The roles of a principal that is not a user are known only
// if it is the caller.
func checkWithin(t *testing.T, m *Machine, who string, c Command, before map[string]Use) {
	t.Helper()
	_, puts := Inner(c).(*Put)
	_, grants := Inner(c).(*Grant)
	for name, u := range usesOf(m) {
		if name == "corp:eve" && who != name {
			continue
		}
		old := before[name]
		for what, n := range map[access.Resource][2]int64{
			access.Leases: {old.Leases, u.Leases}, access.LeaseKeys: {old.LeaseKeys, u.LeaseKeys},
			access.Bytes: {old.Bytes, u.Bytes},
		} {
			most := m.meta.access.Limit(caller(name), what)
			if most > 0 && n[1] > n[0] && n[1] > most && (what != access.Bytes || puts || grants) {
				t.Fatalf("%s has %d %v after %d, and may have %d", name, n[1], what, n[0], most)
			}
		}
	}
}

// putsBound reports whether a command consists of nothing but a put with a TTL.
func putsBound(c Command) bool {
	t, ok := Inner(c).(*Txn)
	return ok && len(t.Compare) == 0 && len(t.Then) == 2 && t.Then[0].Grant != nil &&
		t.Then[0].Grant.Terms.Bound && t.Then[1].Put != nil
}

// checkRefused checks that a rejected command would have exceeded a limit. Space freed by the
// command does not count if the command is part of a transaction, or if a bound lease ends. The
// exception is a put with a TTL that replaces another such put.
func checkRefused(t *testing.T, m *Machine, c Command, e *access.LimitError) {
	t.Helper()
	refreshed := e.What == access.Leases && putsBound(c)
	if _, txn := Inner(c).(*Txn); txn && !refreshed || e.What == access.Bytes {
		return
	}
	twin := unlimited(t, m)
	twin.Lessor().Promote(0)
	ended := twin.Stats().Revoked
	r := apply(t, twin, c)
	if twin.Stats().Revoked > ended && !refreshed {
		return
	}
	u := twin.use(e.Principal)
	got := map[access.Resource]int64{
		access.Leases: u.Leases, access.LeaseKeys: u.LeaseKeys, access.Bytes: u.Bytes,
	}[e.What]
	if r.Err == nil && got <= e.Limit {
		t.Fatalf("%#v was refused, %v, and makes it %d", Inner(c), e, got)
	}
	was := m.use(e.Principal)
	had := map[access.Resource]int64{
		access.Leases: was.Leases, access.LeaseKeys: was.LeaseKeys, access.Bytes: was.Bytes,
	}[e.What]
	if e.Used >= 0 && e.Used != had {
		t.Fatalf("%v says %d, and %d are used", e, e.Used, had)
	}
}

// TestRestoreBadAccounts checks that Restore rejects a snapshot that charges a lease to two
// accounts or contains an empty account.
func TestRestoreBadAccounts(t *testing.T) {
	m := tenants(t)
	mustApply(t, m, as(m, "root", &Grant{Terms: lease.Terms{ID: 1, TTL: 5000}}))
	mustApply(t, m, as(m, "root", &Put{Key: "k", Lease: 1}))
	good := account{"root", []lease.ID{1}}
	for name, records := range map[string][]account{
		"lease twice":  {good, {"bob", []lease.ID{1}}},
		"no lease":     {{"root", []lease.ID{2}}},
		"of nobody":    {{"", []lease.ID{1}}},
		"with nothing": {{"root", nil}},
	} {
		t.Run(name, func(t *testing.T) {
			twin := restored(t, m)
			twin.meta.accounts = accounts{leases: twin.lessor}
			twin.lessor.Charge(1, "")
			err := error(nil)
			for _, r := range records {
				d := &decoder{Decoder: snapshotFormat.Decoder(1, appendAccount(nil, r))}
				r = d.account()
				if err = d.End(); err == nil {
					err = twin.restoreAccount(r)
				}
				if err != nil {
					break
				}
			}
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("error %v", err)
			}
		})
	}
	if got := usesOf(restored(t, m)); !maps.Equal(got, usesOf(m)) {
		t.Errorf("uses %v", got)
	}
}

// TestRank checks that Rank agrees with Uses.
func TestRank(t *testing.T) {
	m := tenants(t)
	mustApply(t, m, as(m, "root", &Grant{Terms: lease.Terms{ID: 1, TTL: 5000}}))
	mustApply(t, m, as(m, "root", &Put{Key: "k", Lease: 1}))
	mustApply(t, m, as(m, "bob", &Put{Key: "c"}))
	r := access.NewRanking(2)
	m.Rank(r)
	root, bob := m.use("root"), m.use("bob")
	want := [access.Resources][]access.Portion{
		access.Leases: {{Principal: "root", Has: 1}}, access.LeaseKeys: {{Principal: "root", Has: 1}},
		access.Bytes: {{Principal: "root", Has: root.Bytes}, {Principal: "bob", Has: bob.Bytes}},
	}
	if !reflect.DeepEqual(r.Top, want) || root.Bytes <= bob.Bytes {
		t.Errorf("%v, want %v", r.Top, want)
	}
}

// TestSnapshotNamesWritersOnce checks that a snapshot contains the name of each principal only
// once, because the quota does not count it for every version.
func TestSnapshotNamesWritersOnce(t *testing.T) {
	m := tenants(t)
	long := strings.Repeat("n", 1000)
	for i := range 500 {
		txn := m.store.Begin()
		for _, name := range []string{long, fmt.Sprint("u", i%2)} {
			txn.PutFor(m.store.Writer(name), "k", nil, 0)
		}
		txn.End()
	}
	if n := len(bytes.Join(chunks(t, m), nil)); n > 1000*50 {
		t.Errorf("the snapshot has %d bytes", n)
	}
	if got, want := usesOf(restored(t, m)), usesOf(m); !maps.Equal(got, want) {
		t.Errorf("uses %v, want %v", got, want)
	}
}
