package fsm

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"leasehold.dev/lease"
)

// TestReaderReuse checks that a machine keeps no references to memory that a Reader reuses. It must
// have the same state and results as a machine whose commands have their own memory.
func TestReaderReuse(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		cfg := Config{Lease: lease.Config{MaxKeys: rng.IntN(4)}}
		a, b := New(cfg), New(cfg)
		s := open(t, a, 1)
		open(t, b, 1)
		var reader Reader
		var got, want []Result
		for i := range uint64(100) {
			entry := AppendEntry(nil, 1)
			for n := range 1 + rng.Uint64N(5) {
				c := randomCommand(rng)
				if c.kind().repeatable() && rng.IntN(2) == 0 {
					number := 1 + 5*i + n
					c = &Once{s, number, max(number, 20) - 20, c}
				}
				entry = AppendCommand(entry, c)
			}
			groups, err := reader.Decode(entry)
			if err != nil {
				t.Fatal(err)
			}
			fresh, err := DecodeEntry(entry)
			if err != nil || !reflect.DeepEqual(groups, fresh) {
				t.Fatalf("decoded %v, and then %v, %v", groups, fresh, err)
			}
			a.Begin(i+10, 1)
			b.Begin(i+10, 1)
			for k, c := range groups[0].Commands {
				got = append(got, a.Apply(c))
				want = append(want, b.Apply(fresh[0].Commands[k]))
			}
			reader.Release()
			clear(entry)
		}
		for i := range got {
			if fmt.Sprint(got[i].Err) != fmt.Sprint(want[i].Err) ||
				got[i].Revision != want[i].Revision ||
				!reflect.DeepEqual(got[i].Value, want[i].Value) {
				t.Fatalf("seed %d, result %d: %+v, want %+v", seed, i, got[i], want[i])
			}
		}
		if !reflect.DeepEqual(chunks(t, a), chunks(t, b)) {
			t.Fatalf("seed %d: the states differ", seed)
		}
		if x, y := after(t, a, 0), after(t, b, 0); !reflect.DeepEqual(x, y) {
			t.Fatalf("seed %d: events %+v, want %+v", seed, x, y)
		}
	}
}

// TestReaderReleases checks that Release clears the commands that Decode returned, and drops very
// large allocations.
func TestReaderReleases(t *testing.T) {
	var r Reader
	many := slices.Repeat([]Command{&Put{Key: "k"}}, 100)
	for _, entry := range [][]byte{encode(many...), encode(&Put{Key: "k"}), encode(many[1:]...)} {
		groups, err := r.Decode(entry)
		if err != nil {
			t.Fatal(err)
		}
		commands := groups[0].Commands
		put := commands[len(commands)-1].(*Put)
		if r.Release(); put.Key != "" || commands[0] != nil {
			t.Errorf("%+v is left of %d commands", put, len(commands))
		}
	}
	if _, err := r.Decode(encode(slices.Repeat(many, 2*keptMost/100)...)); err != nil {
		t.Fatal(err)
	}
	if r.Release(); r.commands != nil || r.d.mem.puts.all != nil {
		t.Error("memory for very many commands is kept")
	}
}

// TestSessionAnswers checks that a session keeps the responses to all numbers that are not settled,
// regardless of memory reuse, and that images of the session do not change.
func TestSessionAnswers(t *testing.T) {
	type picture struct {
		image sessionsImage
		want  []uint64
	}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		l := newSessions()
		l.limits.answers = 60
		s := l.use(l.open(1, ""))
		want := make(map[uint64]bool)
		var pictures []picture
		settled, last := uint64(0), uint64(0)
		for range 2000 {
			switch rng.IntN(12) {
			case 0:
				settled = max(settled, last-min(last, rng.Uint64N(40)))
				l.settle(s, settled)
				maps.DeleteFunc(want, func(n uint64, _ bool) bool { return n < s.settled })
			case 1:
				if rng.IntN(10) == 0 {
					pictures = append(pictures, picture{l.image(), slices.Sorted(maps.Keys(want))})
				}
			default:
				number := last + 1 + rng.Uint64N(3)
				if rng.IntN(5) == 0 {
					number -= min(number, 5)
				}
				if number < max(s.settled, 1) || want[number] {
					continue
				}
				last = max(last, number)
				l.keep(s, number, Result{Revision: int64(number)})
				want[number] = true
				maps.DeleteFunc(want, func(n uint64, _ bool) bool { return n < s.settled })
			}
			wantAnswers(t, s.answers, slices.Sorted(maps.Keys(want)))
		}
		for _, p := range pictures {
			wantAnswers(t, p.image.list[0].answers, p.want)
		}
	}
}

func wantAnswers(t *testing.T, answers []answer, want []uint64) {
	t.Helper()
	var got []uint64
	for _, a := range answers {
		if a.result.Revision != int64(a.number) {
			t.Fatalf("the answer to %d is %+v", a.number, a.result)
		}
		got = append(got, a.number)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("answers to %v, want %v", got, want)
	}
}

// TestReuseChanges checks that the result of TakeChanges stays unchanged until ReuseChanges is
// called.
func TestReuseChanges(t *testing.T) {
	m := New(Config{})
	keys := func(changes []Change) (keys []string) {
		for _, c := range changes {
			for _, e := range c.Events {
				keys = append(keys, fmt.Sprint(c.Revision, e.KV.Key))
			}
		}
		return keys
	}
	mustApply(t, m, &Put{Key: "a"})
	mustApply(t, m, &Txn{Then: []Op{{Put: &Put{Key: "b"}}, {Put: &Put{Key: "c"}}}})
	first := m.TakeChanges()
	mustApply(t, m, &Put{Key: "d"})
	m.ReuseChanges() // too early, but no change is lost
	if got := keys(m.TakeChanges()); !slices.Equal(got, []string{"4d"}) {
		t.Errorf("second %v", got)
	}
	if got, want := keys(first), []string{"2a", "3b", "3c"}; !slices.Equal(got, want) {
		t.Errorf("first %v, want %v", got, want)
	}
	m.ReuseChanges()
	mustApply(t, m, &Put{Key: "e"})
	if got := keys(m.TakeChanges()); !slices.Equal(got, []string{"5e"}) {
		t.Errorf("third %v", got)
	}
}

// TestReaderUsesMemoryAgain checks that a Reader decodes the next entry into the memory of the
// previous one.
func TestReaderUsesMemoryAgain(t *testing.T) {
	put, compare := &Put{Key: "k"}, Compare{Key: "k"}
	entry := encode(
		put, put, &DeleteRange{Key: "k"}, &Grant{}, &Revoke{ID: 1}, &Once{Command: put},
		&Txn{Compare: []Compare{compare}, Then: []Op{{Range: &Range{Key: "k"}}}},
	)
	var r Reader
	where := func() (at []any) {
		groups, err := r.Decode(entry)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range groups[0].Commands {
			at = append(at, c)
		}
		txn := groups[0].Commands[6].(*Txn)
		return append(at, &groups[0], &txn.Compare[0], &txn.Then[0], txn.Then[0].Range)
	}
	for range 3 { // after this, there is enough memory for all of them
		where()
		r.Release()
	}
	first := where()
	second := where() // this implicitly releases the first entry
	if len(r.groups) != 1 || len(r.commands) != 7 {
		t.Errorf("%d groups, %d commands", len(r.groups), len(r.commands))
	}
	for i := range first {
		if first[i] != second[i] {
			t.Errorf("thing %d, a %T, is elsewhere", i, first[i])
		}
	}
	if r.Version() != 1 {
		t.Errorf("version %d", r.Version())
	}
	if r.Release(); r.Version() != 0 {
		t.Errorf("version %d of what was let go", r.Version())
	}
}
