package fsm

import (
	"errors"
	"fmt"
	"iter"
	"testing"

	"leasehold.dev/internal/mvcc"
)

// TestTxnTooLarge: a transaction that reads the keys too often is refused where it is applied,
// also by its conditions or nested ones, and has changed nothing; a replay of the log does the
// same. What reads or deletes all keys twice is not too large.
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
	first := Op{Range: &Range{Key: "\x00", End: "\x00", Options: mvcc.RangeOptions{Limit: 2}}}
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
		"all, often":     {&Txn{Then: append(times(600, all()), put)}, true},
		"less often":     {&Txn{Then: append(times(500, all()), put)}, false},
		"conditions":     {&Txn{Compare: many, Then: []Op{put}}, true},
		"less of them":   {&Txn{Compare: many[:500], Then: []Op{put}}, false},
		"other branch":   {&Txn{Then: []Op{put}, Else: times(600, all())}, false},
		"deletes":        {&Txn{Then: append(times(600, remove), put)}, true},
		"read, deleted":  {&Txn{Then: []Op{all(), remove, put}}, false},
		"counted":        {&Txn{Then: append(times(5000, counts), put)}, false},
		"first":          {&Txn{Then: append(times(5000, first), put)}, false},
		"puts and reads": {&Txn{Then: append(puts, times(400, all())...)}, true},
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
		_, err := ReadTxn(&Txn{Then: times(600, all())}, before.KV)
		if !errors.Is(err, ErrTxnTooLarge) {
			t.Errorf("read only: %v", err)
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

// TestTxnWorkAfterScrub: how much of a compaction a member has cleaned up does not decide whether
// a transaction is too large: members that differ in it would diverge (S3).
func TestTxnWorkAfterScrub(t *testing.T) {
	const keys, ranges = 20_000, 60
	var last []Result
	for _, scrubbed := range []bool{false, true} {
		m := New(Config{})
		open(t, m, 5)
		var fill Txn
		for i := range keys {
			fill.Then = append(fill.Then, Op{Put: &Put{Key: fmt.Sprint("k", i)}})
		}
		mustApply(t, m, &fill)
		mustApply(t, m, &DeleteRange{Key: "k", End: "l"})
		mustApply(t, m, &Put{Key: "x"})
		at := m.View().KV.Revision()
		mustApply(t, m, &Compact{Revision: at})
		mustApply(t, m, &Put{Key: "x"})
		for scrubbed && m.Scrub(1000) {
		}
		past := &Txn{Then: []Op{{Put: &Put{Key: "y"}}}}
		for range ranges {
			past.Then = append(past.Then, Op{Range: &Range{
				Key: "k", End: "l", Options: mvcc.RangeOptions{Revision: at},
			}})
		}
		m.Begin(m.Index()+1, 1)
		last = append(last, m.Apply(past))
	}
	if last[0].Err != nil || last[1].Err != nil {
		t.Errorf("not scrubbed: %v; scrubbed: %v", last[0].Err, last[1].Err)
	}
}

// looks counts the keys that are looked at.
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

// A condition on all keys of a range is decided by the first for which it is false: whoever asks
// whether anybody is in a line does not look at all who are.
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
