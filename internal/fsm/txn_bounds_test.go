package fsm

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"leasehold.dev/internal/mvcc"
)

// TestTxnTooLarge checks that a transaction that reads too many keys, even in conditions or nested
// transactions, is rejected when it is applied and changes nothing. Replaying the log has the same
// result.
func TestTxnTooLarge(t *testing.T) {
	all := func() Op { return Op{Range: &Range{End: "\x00", Key: "\x00"}} }
	times := func(n int, op Op) (list []Op) {
		for range n {
			list = append(list, op)
		}
		return list
	}
	put := Op{Put: &Put{Key: "new"}}
	remove := Op{Delete: &DeleteRange{Key: "\x00", End: "\x00"}}
	counts := Op{Range: &Range{
		Key: "\x00", End: "\x00", Options: mvcc.RangeOptions{CountOnly: true},
	}}
	now := Op{Range: &Range{Key: "\x00", End: "\x00", Options: mvcc.RangeOptions{
		CountOnly: true, Revision: 2,
	}}}
	others := Op{Delete: &DeleteRange{Key: "p", End: "q"}}
	first := Op{Range: &Range{Key: "\x00", End: "\x00", Options: mvcc.RangeOptions{Limit: 2}}}
	sorted := Op{Range: &Range{Key: "\x00", End: "\x00", Options: mvcc.RangeOptions{
		SortBy: mvcc.ByMod,
	}}}
	oldest := Op{Range: &Range{Key: "\x00", End: "\x00", Options: mvcc.RangeOptions{
		SortBy: mvcc.ByCreate, Limit: 1,
	}}}
	every := Compare{Key: "\x00", End: "\x00", Target: TargetVersion, Relation: Greater}
	many := make([]Compare, 600)
	for i := range many {
		many[i] = every
	}
	var puts []Op
	for i := range 1500 {
		puts = append(puts, Op{Put: &Put{Key: fmt.Sprint("p", i)}})
	}
	const keys = 2000
	for name, c := range map[string]struct {
		txn   *Txn
		large bool
	}{
		"all, often":       {&Txn{Then: append(times(600, all()), put)}, true},
		"less often":       {&Txn{Then: append(times(240, all()), put)}, false},
		"conditions":       {&Txn{Compare: many, Then: []Op{put}}, true},
		"less of them":     {&Txn{Compare: many[:240], Then: []Op{put}}, false},
		"other branch":     {&Txn{Then: []Op{put}, Else: times(600, all())}, false},
		"deletes":          {&Txn{Then: append(times(600, remove), put)}, true},
		"deletes few":      {&Txn{Then: []Op{remove, put}}, false},
		"read, deleted":    {&Txn{Then: []Op{all(), remove, put}}, false},
		"counted":          {&Txn{Then: append(times(5000, counts), put)}, false},
		"first":            {&Txn{Then: append(times(5000, first), put)}, false},
		"sorted":           {&Txn{Then: append(times(16, sorted), put)}, true},
		"sorted, less":     {&Txn{Then: append(times(14, sorted), put)}, false},
		"the oldest":       {&Txn{Then: append(times(120, oldest), put)}, false},
		"oldest too often": {&Txn{Then: append(times(130, oldest), put)}, true},
		"puts, then sorts": {&Txn{Then: append(slices.Clone(puts), times(9, sorted)...)}, true},
		"puts and reads":   {&Txn{Then: append(slices.Clone(puts), times(400, all())...)}, true},
		"puts and deletes": {&Txn{Then: append(slices.Clone(puts), times(20, others)...)}, true},
		"fewer deletes":    {&Txn{Then: append(slices.Clone(puts), times(15, others)...)}, false},
		"now, then past":   {&Txn{Then: append([]Op{put}, times(600, now)...)}, true},
		"nested": {&Txn{Then: []Op{
			put, {Txn: &Txn{Then: times(300, all())}}, {Txn: &Txn{Compare: many[:300]}},
		}}, true},
	} {
		m := New(Config{})
		open(t, m, 5)
		var fill Txn
		for i := range keys {
			fill.Then = append(fill.Then, Op{Put: &Put{Key: fmt.Sprint("k", i)}})
		}
		mustApply(t, m, &fill)
		before := m.View()
		once := &Once{Session{1, 5}, 1, 0, c.txn}
		for range 2 {
			m.Begin(m.Index()+1, 1)
			r := m.Apply(c.txn)
			if (r.Err == ErrTxnTooLarge) != c.large || r.Err != nil && !c.large { //nolint:errorlint
				t.Errorf("%s: %v", name, r.Err)
			}
		}
		if (m.View().KV.Revision() == before.KV.Revision()) != c.large {
			t.Errorf("%s: revision %d, then %d", name, before.KV.Revision(), m.View().KV.Revision())
		}
		if name == "all, often" {
			_, err := ReadTxn(c.txn, before.KV)
			if !errors.Is(err, ErrTxnTooLarge) {
				t.Errorf("read only: %v", err)
			}
		}
		if c.large {
			m.Apply(once)
			m = restored(t, m)
			if r := m.Apply(once); r.Err != ErrTxnTooLarge || !r.Repeated { //nolint:errorlint
				t.Errorf("%s, restored: %+v", name, r)
			}
		}
	}
}

// TestLongValueCost checks that the charge for comparing or sorting long values depends on their
// length, because all other commands have to wait. This does not apply to read-only transactions,
// which do not block other commands.
func TestLongValueCost(t *testing.T) {
	const keys, length = 256, 16 * comparedBytes
	m := New(Config{})
	for i := range keys {
		mustApply(t, m, &Put{Key: fmt.Sprint("k", i), Value: make([]byte, length)})
	}
	sorted := func(times int, limit int64) (list []Op) {
		o := mvcc.RangeOptions{SortBy: mvcc.ByValue, Limit: limit}
		for range times {
			list = append(list, Op{Range: &Range{Key: "k", End: "l", Options: o}})
		}
		return append(list, Op{Put: &Put{Key: "new"}})
	}
	differ := func(times, length int) (list []Compare) {
		for range times {
			list = append(list, Compare{
				Key: "k", End: "l", Target: TargetValue, Relation: NotEqual,
				Value: append(make([]byte, length), 1),
			})
		}
		return list
	}
	one := slices.Repeat([]Compare{{
		Key: "k0", Target: TargetValue, Relation: NotEqual, Value: make([]byte, 4096*comparedBytes),
	}}, 125)
	put := sorted(0, 0)
	for name, c := range map[string]struct {
		txn   *Txn
		large bool
	}{
		"sorted":       {&Txn{Then: sorted(8, 0)}, true},
		"less often":   {&Txn{Then: sorted(7, 0)}, false},
		"the first 99": {&Txn{Then: sorted(7, 99)}, false},
		"the first":    {&Txn{Then: sorted(101, 1)}, false},
		"first often":  {&Txn{Then: sorted(104, 1)}, true},
		"conditions":   {&Txn{Compare: differ(116, length), Then: put}, true},
		"less of them": {&Txn{Compare: differ(112, length), Then: put}, false},
		"of one key":   {&Txn{Compare: one, Then: put}, true},
		"on one key":   {&Txn{Compare: one[:120], Then: put}, false},
		"short ones":   {&Txn{Compare: differ(1000, 1), Then: put}, false},
	} {
		before := m.View().KV.Revision()
		m.Begin(m.Index()+1, 1)
		r := m.Apply(c.txn)
		if (r.Err == ErrTxnTooLarge) != c.large || r.Err != nil && !c.large { //nolint:errorlint
			t.Errorf("%s: %v", name, r.Err)
		}
		if (m.View().KV.Revision() == before) != c.large {
			t.Errorf("%s: revision %d, then %d", name, before, m.View().KV.Revision())
		}
		reads := &Txn{Compare: c.txn.Compare, Then: c.txn.Then[:len(c.txn.Then)-1]}
		if _, err := ReadTxn(reads, m.View().KV); err != nil {
			t.Errorf("%s, read only: %v", name, err)
		}
	}
	often := &Txn{Compare: slices.Repeat(one, 3), Then: slices.Repeat(sorted(8, 0)[:8], 3)}
	if _, err := ReadTxn(often, m.View().KV); err != nil {
		t.Errorf("much that is only read: %v", err)
	}
	for name, c := range map[string]*Txn{
		"sort": {Then: sorted(1, 0)}, "compare": {Compare: differ(1, length)},
	} {
		if d := m.Time(c, 0); d < keys*16 {
			t.Errorf("to %s %d long values is estimated at %d", name, keys, d)
		}
	}
}

// TestTxnAnswerTooLarge checks that the size of a transaction's response is bounded, even if each
// operation reads the same large keys.
func TestTxnAnswerTooLarge(t *testing.T) {
	const size = 1 << 20
	m := New(Config{})
	for _, key := range []string{"a", "b"} {
		mustApply(t, m, &Put{Key: key, Value: make([]byte, size)})
	}
	times := func(n int, r Range) (list []Op) {
		for range n {
			list = append(list, Op{Range: &r})
		}
		return list
	}
	one, both := Range{Key: "a"}, Range{Key: "a", End: "z"}
	counts := Range{Key: "a", End: "z", Options: mvcc.RangeOptions{CountOnly: true}}
	first := Range{Key: "a", End: "z", Options: mvcc.RangeOptions{Limit: 1}}
	put := Op{Put: &Put{Key: "c", Value: make([]byte, size)}}
	for name, c := range map[string]struct {
		ops   []Op
		large bool
	}{
		"one key":           {times(258, one), false},
		"one key too often": {times(261, one), true},
		"a range":           {times(129, both), false},
		"a range too often": {times(131, both), true},
		"its first key":     {times(258, first), false},
		"counted":           {times(10_000, counts), false},
		"what it puts":      {append([]Op{put}, times(90, both)...), true},
		"puts, less":        {append([]Op{put}, times(85, both)...), false},
		"put and read":      {append([]Op{put}, times(135, Range{Key: "c"})...), false},
		"nested": {[]Op{
			{Txn: &Txn{Then: times(130, one)}}, {Txn: &Txn{Then: times(131, one)}},
		}, true},
	} {
		for range 2 {
			before := m.View().KV.Revision()
			m.Begin(m.Index()+1, 1)
			txn := &Txn{Then: append([]Op{{Put: &Put{Key: "d"}}}, c.ops...)}
			r := m.Apply(txn)
			if (r.Err == ErrTxnTooLarge) != c.large || r.Err != nil && !c.large { //nolint:errorlint
				t.Errorf("%s: %v", name, r.Err)
			}
			if (m.View().KV.Revision() == before) != c.large {
				t.Errorf("%s: revision %d, then %d", name, before, m.View().KV.Revision())
			}
			if !c.large && c.ops[0].Put != nil {
				mustApply(t, m, &DeleteRange{Key: "c"})
			}
			if !c.large {
				mustApply(t, m, &Compact{Revision: m.View().KV.Revision()})
			}
		}
		if c.ops[0].Put == nil {
			_, err := ReadTxn(&Txn{Then: c.ops}, m.View().KV)
			if errors.Is(err, ErrTxnTooLarge) != c.large {
				t.Errorf("%s, read only: %v", name, err)
			}
		}
	}
}

// TestPastRangeCost checks that a read at an old revision is charged for all keys that it visits.
// The charge for deleted keys is the same whether or not a member has scrubbed them or been
// restored. Otherwise, members would diverge (S3).
func TestPastRangeCost(t *testing.T) {
	const kept = 2_000 // a compaction turns the same number of other keys into garbage
	all := func(ranges int, o mvcc.RangeOptions) *Txn {
		txn := &Txn{Then: []Op{{Put: &Put{Key: "y"}}}}
		for range ranges {
			txn.Then = append(txn.Then, Op{Range: &Range{Key: "k", End: "l", Options: o}})
		}
		return txn
	}
	for name, c := range map[string]struct {
		ranges int
		o      mvcc.RangeOptions
		large  bool
	}{
		"one":        {1, mvcc.RangeOptions{}, false},
		"some":       {245, mvcc.RangeOptions{CountOnly: true}, false},
		"many":       {265, mvcc.RangeOptions{CountOnly: true}, true},
		"many first": {265, mvcc.RangeOptions{Limit: 1}, true},
		"of now":     {265, mvcc.RangeOptions{Revision: -1, CountOnly: true}, false},
	} {
		var sums []uint32
		for _, scrubs := range []int{0, 3, 100} {
			m, past := withDeleted(t, kept)
			for range scrubs {
				m.Scrub(500)
			}
			for _, m := range []*Machine{m, restored(t, m)} {
				if c.o.Revision == 0 {
					c.o.Revision = past
				}
				_, err := ReadTxn(&Txn{Then: all(2*c.ranges, c.o).Then[1:]}, m.View().KV)
				m.Begin(m.Index()+1, 1)
				r := m.Apply(all(c.ranges, c.o))
				if errors.Is(r.Err, ErrTxnTooLarge) != c.large || r.Err != nil && !c.large {
					t.Errorf("%s, %d scrubs: %v", name, scrubs, r.Err)
				}
				if scrubs == 100 && errors.Is(err, ErrTxnTooLarge) != c.large {
					t.Errorf("%s, %d scrubs, read only: %v", name, scrubs, err)
				}
				sums = append(sums, hash(t, m))
			}
		}
		if len(slices.Compact(sums)) != 1 {
			t.Errorf("%s: members differ: %x", name, sums)
		}
	}
}

// withDeleted returns a machine in which n keys were deleted before a compaction and n after it. At
// the returned revision, the second n keys still existed.
func withDeleted(t *testing.T, n int) (m *Machine, past int64) {
	t.Helper()
	m = New(Config{})
	open(t, m, 5)
	for _, prefix := range []string{"k0/", "k1/"} {
		var fill Txn
		for i := range n {
			fill.Then = append(fill.Then, Op{Put: &Put{Key: fmt.Sprint(prefix, i)}})
		}
		mustApply(t, m, &fill)
		past = m.View().KV.Revision()
		mustApply(t, m, &DeleteRange{Key: "k", End: "l"})
		mustApply(t, m, &Put{Key: "x"})
	}
	mustApply(t, m, &Compact{Revision: past})
	return m, past
}

// looks counts the keys visited.
type looks struct {
	reader
	n int
}

func (l *looks) Ascend(key, end string, rev int64) iter.Seq[*mvcc.KeyValue] {
	return func(yield func(*mvcc.KeyValue) bool) {
		for kv := range l.reader.Ascend(key, end, rev) {
			if l.n++; !yield(kv) {
				return
			}
		}
	}
}

func (l *looks) Range(key, end string, o mvcc.RangeOptions) (mvcc.RangeResult, error) {
	r, err := l.reader.(*mvcc.View).Range(key, end, o)
	l.n += len(r.KVs)
	return r, err
}

// TestConditionEndsEarly checks that a condition over a range stops at the first key for which it
// is false. Checking whether a queue has a waiter then does not visit all waiters.
func TestConditionEndsEarly(t *testing.T) {
	m := New(Config{})
	m.Begin(1, 1)
	for i := range 1000 {
		m.Apply(&Put{Key: fmt.Sprintf("line/%03d", i)})
	}
	l := &looks{reader: m.View().KV}
	nobody := Compare{Key: "line/", End: "line0", Target: TargetCreate}
	if holds(&nobody, state{keys: l}) || l.n != 1 {
		t.Errorf("nobody is in the line, or %d places were looked at", l.n)
	}
	all := Compare{Key: "line/", End: "line0", Target: TargetVersion, Number: 1}
	if l.n = 0; !holds(&all, state{keys: l}) || l.n != 1000 {
		t.Errorf("one is not as it should be, or %d of 1000 places were looked at", l.n)
	}
}
