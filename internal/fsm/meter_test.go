package fsm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// priced returns a state with three keys, two of them on lease 1. Comparing one of their values
// costs as much as visiting two keys.
func priced(t *testing.T) *Machine {
	m := New(Config{})
	grant(t, m, 1)
	for i, id := range []lease.ID{1, 1, 0} {
		put := &Put{Key: fmt.Sprint("k", i), Lease: id, Value: make([]byte, 2*comparedBytes)}
		mustApply(t, m, put)
	}
	return m
}

func ranged(o mvcc.RangeOptions) Op { return Op{Range: &Range{Key: "k", End: "l", Options: o}} }

// TestTxnTime checks the time charged for a transaction. All releases must charge the same, because
// transactions that are too expensive are rejected when they are applied.
func TestTxnTime(t *testing.T) {
	m := priced(t)
	put, remove := Op{Put: &Put{Key: "new"}}, Op{Delete: &DeleteRange{Key: "k", End: "l"}}
	all := ranged(mvcc.RangeOptions{})
	byValue := mvcc.RangeOptions{SortBy: mvcc.ByValue}
	counted := mvcc.RangeOptions{SortBy: mvcc.ByValue, CountOnly: true}
	times := byValue.Comparisons()
	long := make([]byte, 3*comparedBytes)
	if_ := func(list ...Compare) *Txn { return &Txn{Compare: list} }
	then := func(ops ...Op) *Txn { return &Txn{Then: ops} }
	const op = OpTime
	for _, c := range []struct {
		txn  *Txn
		want int64
	}{
		{if_(Compare{Target: TargetLeaseAlive, Key: "k", End: "l"}), op},
		{if_(Compare{Target: TargetNameToken, Key: "k", End: "l"}), op},
		{if_(Compare{Target: TargetLeaseName, Key: "k", End: "l", Value: long}), op + 3},
		{if_(Compare{Key: "k0"}), op},
		{if_(Compare{Key: "k", End: "l"}), op + 3},
		{if_(Compare{Target: TargetValue, Key: "k0", Value: long}), op + 3},
		{if_(Compare{Target: TargetValue, Key: "k", End: "l", Value: long}), op + 3 + 3*3},
		{if_(Compare{Key: "k0", Number: 9}, Compare{Key: "k0"}), op}, // the first condition decides
		{then(put, Op{Draw: true}), 2 * op},
		{then(Op{Delete: &DeleteRange{Key: "k0"}}), op},
		{then(remove), op + 3*deleteTime},
		{then(put, put, remove), 3*op + 5*deleteTime}, // the new keys may be in the deleted range
		{then(put, Op{Revoke: &Revoke{ID: 1}}), 2*op + 3*deleteTime},
		{then(Op{Range: &Range{Key: "k0"}}), op},
		{then(all), op + 3},
		{then(put, all), 2*op + 4},
		{then(ranged(mvcc.RangeOptions{SortBy: mvcc.ByMod})), op + 3 + 3*times},
		{then(ranged(counted)), op + 1}, // nothing has to be sorted
		{then(ranged(byValue)), op + 3 + 3 + (3+(3*(2+2*comparedBytes))/comparedBytes)*times},
		{then(Op{Txn: then(put, put)}), 3 * op},
	} {
		w := newMeter(applyTime, m.store.Size())
		w.keys, w.leases = m.View().KV, m.lessor
		makePlan(c.txn, state{m.View().KV, m.lessor, w})
		if got := applyTime - w.left; got != c.want {
			t.Errorf("%+v, %+v take %d, want %d", c.txn.Compare, c.txn.Then, got, c.want)
		}
	}
	if w := newMeter(5, 10); w.left != 5 || w.reads.left != 256<<20+20 || w.reads.size != 10 {
		t.Errorf("at first there is %+v", w)
	}
}

// TestTxnUsesWholeBudget checks that a transaction can use the whole budget, and that with one more
// operation it is rejected.
func TestTxnUsesWholeBudget(t *testing.T) {
	const keys = 1000 - OpTime
	m := New(Config{})
	m.Begin(1, 1)
	for i := range keys {
		m.Apply(&Put{Key: fmt.Sprintf("k%03d", i)})
	}
	one := Op{Range: &Range{Key: "x"}}
	range_ := ranged(mvcc.RangeOptions{})
	reads := slices.Repeat([]Op{range_}, readTime/(keys+OpTime))
	for left := readTime + 2*keys - len(reads)*(keys+OpTime); left >= OpTime; left -= OpTime {
		reads = append(reads, one)
	}
	for _, more := range [][]Op{nil, {one}, {range_}, {{Txn: &Txn{Compare: []Compare{{}}}}}} {
		applied := append(slices.Repeat([]Op{range_}, applyTime/(keys+OpTime)), more...)
		if r := apply(t, m, &Txn{Then: applied}); (r.Err != nil) != (more != nil) {
			t.Errorf("applied, with %+v more: %v", more, r.Err)
		}
		_, err := ReadTxn(&Txn{Then: append(reads, more...)}, m.View().KV)
		if (err != nil) != (more != nil) {
			t.Errorf("read, with %+v more: %v", more, err)
		}
	}
}

// TestTime checks the estimated time of commands, which limits how much fits into an entry.
func TestTime(t *testing.T) {
	m := priced(t)
	mustApply(t, m, &DeleteRange{Key: "k2"})
	mustApply(t, m, &UserAdd{Name: "u"})
	none := &Put{Key: "x"}
	past := Op{Range: &Range{Key: "a", End: "z", Options: mvcc.RangeOptions{Revision: 3}}}
	sorted := mvcc.RangeOptions{SortBy: mvcc.ByMod, Limit: 2}
	value := Compare{Key: "k", End: "l", Target: TargetValue, Value: make([]byte, 7*comparedBytes)}
	in := func(ops ...Op) *Txn { return &Txn{Then: ops} }
	const op, waiting = OpTime, 77
	for _, c := range []struct {
		c    Command
		want int64
	}{
		{&Expire{Leases: []lease.Due{{ID: 1}, {ID: 2}}}, (1+2*2)*op + 2*deleteTime},
		{&Checkpoint{Leases: make([]lease.Checkpoint, 3)}, 4 * op},
		{&Revoke{ID: 1}, op + (2+waiting)*deleteTime},
		{&DeleteRange{Key: "k"}, op},
		{&DeleteRange{Key: "k", End: "l"}, op + (2+waiting)*deleteTime},
		{&Compact{}, compactTime},
		{&RoleAdd{"r"}, (1 + 1 + waiting) * op},
		{&Grant{}, op},
		{&SetAlarm{}, op},
		{&Put{Lease: 1}, op},
		{in(Op{Put: none}, Op{Draw: true}, Op{Grant: &Grant{}}), 4 * op},
		{in(Op{Delete: &DeleteRange{Key: "k", End: "l"}}), 2*op + (2+waiting)*deleteTime},
		{in(Op{Revoke: &Revoke{ID: 1}}), 2*op + (2+waiting)*deleteTime},
		{in(Op{Txn: in(Op{Put: none})}), 3 * op},
		{in(Op{Range: &Range{Key: "k"}}), 2 * op},
		{in(past), 2*op + 2 + waiting + int64(m.store.Deleted())},
		{in(ranged(sorted)), 2*op + (2+waiting)*(1+sorted.Comparisons())},
		{&Txn{Compare: []Compare{value}}, 2*op + (2+waiting)*8},
	} {
		if got := m.Time(c.c, waiting*op); got != c.want {
			t.Errorf("%T %+v takes %d, want %d", c.c, c.c, got, c.want)
		}
	}
	m = tenants(t)
	mustApply(t, m, as(m, "root", &Grant{Terms: lease.Terms{ID: 1, TTL: 1000}}))
	mustApply(t, m, as(m, "root", &Put{Key: "a", Lease: 1}))
	put := as(m, "alice", &Put{Key: "a", Lease: 1})
	if got, want := m.Time(put, waiting*op), int64(op+1+waiting); got != want {
		t.Errorf("a put on a lease of a key takes %d, want %d", got, want)
	}
}

// TestOperations checks that Operations counts the conditions and operations of all branches,
// nested or not.
func TestOperations(t *testing.T) {
	put := Op{Put: &Put{}}
	c := &Txn{
		Compare: make([]Compare, 2), Then: []Op{put, {Txn: &Txn{Compare: make([]Compare, 3)}}},
		Else: []Op{put, {Txn: &Txn{Then: []Op{put, put}}}, put},
	}
	if n := c.Operations(); n != 2+2+3+3+2 {
		t.Errorf("%d operations", n)
	}
}

// TestReadOnly checks which transactions are read-only. A View can answer read-only transactions
// without a log entry.
func TestReadOnly(t *testing.T) {
	get := Op{Range: &Range{}}
	nested := func(op Op) *Txn {
		return &Txn{Then: []Op{get}, Else: []Op{get, {Txn: &Txn{Else: []Op{op}}}}}
	}
	for _, c := range []struct {
		txn  *Txn
		want bool
	}{
		{&Txn{}, true},
		{&Txn{Then: []Op{get, get}}, true},
		{nested(get), true},
		{&Txn{Compare: []Compare{{Target: TargetLease}}}, true},
		{&Txn{Compare: []Compare{{}, {Target: TargetLeaseAlive}}}, false},
		{nested(Op{Put: &Put{}}), false},
		{nested(Op{Draw: true}), false},
		{nested(Op{Txn: &Txn{Compare: []Compare{{Target: TargetNameToken}}}}), false},
	} {
		if got := c.txn.ReadOnly(); got != c.want {
			t.Errorf("%+v: %v", c.txn, got)
		}
	}
}

// TestReadLikeApplied checks that a View and the machine give the same answers to read-only
// transactions, even at past and future revisions.
func TestReadLikeApplied(t *testing.T) {
	m := New(Config{})
	for i := range 20 {
		mustApply(t, m, &Put{Key: []string{"a", "a1", "aa", "c"}[i%4], Value: []byte{byte(i)}})
	}
	mustApply(t, m, &Compact{Revision: 10})
	now := m.store.Revision()
	revisions := []int64{0, 0, 0, 0, 1, 9, 10, 11, now, now + 1}
	rng := rand.New(rand.NewPCG(8, 8))
	var old func(*Txn)
	old = func(c *Txn) {
		for _, ops := range [...][]Op{c.Then, c.Else} {
			for _, op := range ops {
				if op.Range != nil && rng.IntN(4) == 0 {
					op.Range.Options.Revision = revisions[rng.IntN(len(revisions))]
				} else if op.Txn != nil {
					old(op.Txn)
				}
			}
		}
	}
	read, failed := 0, 0
	for n := 0; read < 3000; n++ {
		c := randomTree(rng, 3)
		if !c.ReadOnly() {
			continue
		}
		old(c)
		read++
		got, err := ReadTxn(c, m.View().KV)
		r := apply(t, m, c)
		if !errors.Is(err, r.Err) || err == nil && !reflect.DeepEqual(got, r.Value) {
			t.Fatalf("transaction %d, %+v: %+v, %v, applied %+v, %v", n, c, got, err, r.Value, r.Err)
		}
		if err != nil {
			failed++
		}
	}
	if failed < 50 {
		t.Errorf("%d of %d have failed: the test tells little", failed, read)
	}
}
