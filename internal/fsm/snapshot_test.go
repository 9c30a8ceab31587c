package fsm

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// TestChunks checks that a snapshot consists of whole records in nonempty chunks of bounded size,
// and that nothing is written after an error.
func TestChunks(t *testing.T) {
	full := errors.New("disk full")
	for _, fails := range []error{nil, full} {
		var sizes []int
		e := &encoder{write: func(b []byte) error {
			sizes = append(sizes, len(b))
			return fails
		}}
		fill := func(n int) {
			e.record(tagRecord, func(b []byte) []byte { return append(b, make([]byte, n-1)...) })
		}
		if fill(chunkSize - 1); len(sizes) != 0 {
			t.Error("a chunk is written before it is full")
		}
		if fill(1); len(sizes) != 1 || sizes[0] != chunkSize {
			t.Errorf("chunks of %d bytes, want one of %d", sizes, chunkSize)
		}
		if err := e.flush(); !errors.Is(err, fails) || len(sizes) != 1 {
			t.Errorf("chunks of %d bytes, error %v", sizes, err)
		}
		fill(7)
		if err := e.flush(); !errors.Is(err, fails) || (len(sizes) == 2) != (fails == nil) {
			t.Errorf("chunks of %d bytes, error %v", sizes, err)
		}
		if want := map[bool]uint64{true: 3, false: 2}[fails == nil]; e.records != want {
			t.Errorf("%d records, want %d", e.records, want)
		}
	}
	if err := everything(t).Image().Encode(func([]byte) error { return full }); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
}

// TestBadSnapshots checks that Restore rejects snapshots that no member would write, wherever the
// fault is and whatever follows it.
func TestBadSnapshots(t *testing.T) {
	member := func(flags byte, fields ...byte) func([]byte) []byte {
		return record(tagMember, func(b []byte) []byte {
			b = append(append(b, flags), 0, 0, 0, 0, 0, 0, 0, 9) // the ID
			return append(append(b, fields...), 0, 0, 0)         // no name and no URLs
		})
	}
	user := record(tagSessionUser, func(b []byte) []byte { return append(b, 1, 'u') })
	nothing := func(b []byte) []byte { return b }
	flags := func(b []byte) []byte { return append(b, 0) }
	nobody := record(tagSessionUser, func(b []byte) []byte { return append(b, 0) })
	one := lease.Info{Terms: lease.Terms{ID: 1, TTL: 5000}, Token: 2, Stamp: 1}
	delayed := one
	delayed.Delayed, delayed.LockDelay, delayed.Name = true, 5, "n"
	hold := record(tagHolds, func(b []byte) []byte {
		return appendHold(b, 1, []keyrange.Range{{Key: "a"}})
	})
	key := func(on int64) func([]byte) []byte {
		return record(tagRecord, func(b []byte) []byte {
			return appendRecord(b, &mvcc.Record{KeyValue: mvcc.KeyValue{
				Key: "k", CreateRevision: 2, ModRevision: 2, Version: 1, Lease: on,
			}}, new(nameTable))
		})
	}
	for name, c := range map[string]struct {
		records []func([]byte) []byte
		says    string
	}{
		"quota of 0":         {these(member(memberQuota, 0)), "quota"},
		"empty key":          {these(member(memberTokenKey, 0)), "token key"},
		"comparison of none": {these(comparisonRecord(0)), "state comparison"},
		"two comparisons":    {these(comparisonRecord(1), comparisonRecord(2)), "state comparison"},
		"a member twice":     {these(comparisonRecord(1, 7, 7)), "order of the state hashes"},
		"member 0":           {these(comparisonRecord(1, 0)), "order of the state hashes"},
		"session 0":          {these(sessionRecord(0, 0)), "session"},
		"user of no session": {these(user), "without a session"},
		"two users":          {these(sessionRecord(1, 0), user, user), "invalid session user"},
		"unnamed user":       {these(sessionRecord(1, 0), nobody), "invalid session user"},
		"user of an answer":  {these(sessionRecord(1, 0), answerRecord(1), user), "invalid session user"},
		"an answer twice": {
			these(sessionRecord(1, 0), answerRecord(1), answerRecord(1)), "invalid session answer",
		},
		"answers out of order": {
			these(sessionRecord(1, 0), answerRecord(2), answerRecord(1)), "invalid session answer",
		},
		"held twice":     {these(leaseRecord(&one), hold, hold), "holds of a lease"},
		"no lease":       {these(hold), "is not alive"},
		"a lease's end":  {these(leaseRecord(&delayed), hold), "is not alive"},
		"a lease twice":  {these(leaseRecord(&one), leaseRecord(&one)), ""},
		"a key of none":  {these(key(1)), "is attached to lease"},
		"a key twice":    {these(key(0), key(0)), "mvcc"},
		"another header": {these(record(tagHeader, nothing)), "out of place"},
		"a lease behind": {these(key(0), leaseRecord(&one)), "out of place"},
		"half a lease":   {these(record(tagLease, flags)), ""},
		"half a key":     {these(record(tagRecord, flags)), ""},
		"an account of no lease": {
			these(record(tagAccount, func(b []byte) []byte {
				return appendAccount(b, account{Principal: "u", Leases: []lease.ID{1}})
			})), "does not exist or already has an account",
		},
	} {
		for _, cut := range []bool{false, true} {
			_, err := restoreChunks(Config{}, snapshot(cut, c.records...)...)
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, in chunks of its own %v: %v", name, cut, err)
			}
		}
	}
	good := snapshot(
		true, sessionRecord(1, 0), user, answerRecord(1), leaseRecord(&one), hold, key(1),
	)
	if _, err := restoreChunks(Config{}, good...); err != nil {
		t.Fatal(err)
	}
	fell := slices.Clone(good[0])
	fell[len(fell)-2] = versionFell
	for name, c := range map[string]struct {
		chunks [][]byte
		says   string
	}{
		"nothing":          {nil, "no header"},
		"no header":        {good[1:], "no header"},
		"half a header":    {[][]byte{good[0][:3]}, ""},
		"a header's tag":   {[][]byte{{tagHeader}}, ""},
		"fell, not held":   {append([][]byte{fell}, good[1:]...), "lowered but is not held"},
		"no trailer":       {good[:len(good)-1], "ends early"},
		"no key":           {good[:len(good)-2], "ends early"},
		"more at the end":  {append(slices.Clone(good[:7]), []byte{tagTrailer, 7, 0}), "ends early"},
		"counted too many": {append(slices.Clone(good[:7]), []byte{tagTrailer, 9}), "ends early"},
	} {
		_, err := restoreChunks(Config{}, c.chunks...)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSnapshotThatCannotBeRead checks that a disk error at any chunk is returned unchanged.
func TestSnapshotThatCannotBeRead(t *testing.T) {
	failing := errors.New("disk")
	good := snapshot(true, sessionRecord(1, 0), answerRecord(1))
	for at := range good {
		for _, ok := range []bool{false, true} {
			i := -1
			_, err := Restore(Config{}, func() ([]byte, bool, error) {
				if i++; i >= at {
					return good[i], ok, failing
				}
				return good[i], true, nil
			})
			if !errors.Is(err, failing) {
				t.Errorf("at chunk %d, ok %v: %v", at, ok, err)
			}
		}
	}
}

func these(records ...func([]byte) []byte) []func([]byte) []byte { return records }

// snapshot returns a snapshot with the given records between a header and a trailer. If cut is set,
// each record is in a chunk of its own.
func snapshot(cut bool, records ...func([]byte) []byte) (chunks [][]byte) {
	// index, term, revision, compacted, tokens, events, sessions
	b := append([]byte{tagHeader, 1}, 7, 1, 4, 0, 3, 0, 0, 2, 0, 0)
	end := func(b []byte) []byte { return append(b, tagTrailer, byte(len(records)+1)) }
	for _, r := range append(records[:len(records):len(records)], end) {
		if cut {
			chunks, b = append(chunks, b), nil
		}
		b = r(b)
	}
	return append(chunks, b)
}

func leaseRecord(l *lease.Info) func([]byte) []byte {
	return record(tagLease, func(b []byte) []byte { return appendInfo(b, l) })
}

func answerRecord(number uint64) func([]byte) []byte {
	return record(tagAnswer, func(b []byte) []byte {
		return appendAnswer(b, &answer{number: number, result: Result{Value: &PutResult{}}})
	})
}

// comparisonRecord returns a record with members' hashes as of an entry.
func comparisonRecord(index byte, members ...byte) func([]byte) []byte {
	return record(tagComparison, func(b []byte) []byte {
		b = append(b, index, byte(len(members)))
		for _, id := range members {
			b = append(b, 0, 0, 0, 0, 0, 0, 0, id, 5)
		}
		return b
	})
}

// TestLongKeyOnce checks that a snapshot contains a long key only once, however many versions it
// has. Otherwise, a state within its quota could have a snapshot too large for any disk.
func TestLongKeyOnce(t *testing.T) {
	m := New(Config{})
	long := strings.Repeat("long", 50_000)
	for i := range 50 {
		m.Begin(uint64(i+1), 1)
		for _, key := range []string{long, long + "er", "short"} {
			m.Apply(&Put{Key: key, Value: []byte("v")})
		}
	}
	all := chunks(t, m)
	bytes := 0
	for _, c := range all {
		bytes += len(c)
	}
	if bytes > 3*len(long) {
		t.Errorf("a snapshot of two keys of %d bytes has %d bytes", len(long), bytes)
	}
	restored, err := Restore(Config{}, source(all...))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := m.Image().Hash()
	if got, err := restored.Image().Hash(); got != want || err != nil {
		t.Errorf("the restored state differs: %x, want %x, %v", got, want, err)
	}
}
