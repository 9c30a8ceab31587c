package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// did makes an operation that lasted from one second to another.
func did(from, to int, c call, a answer) porcupine.Operation {
	return porcupine.Operation{
		Input: c, Call: int64(time.Duration(from) * time.Second),
		Output: a, Return: int64(time.Duration(to) * time.Second),
	}
}

// rev is the answer of a call that was done.
func rev(r int64) answer { return answer{outcome: done, revision: r} }

var (
	noLease  = answer{outcome: refused}
	noAnswer = answer{outcome: unknown}
)

// found is the answer of a read.
func found(r int64, p record) answer { return answer{outcome: done, revision: r, pair: p} }

// held is what is under k after a put of v with lease 7 at revision 1.
var held = record{value: "v", create: 1, mod: 1, version: 1, lease: 7}

// leased grants lease 7, of 5 s, puts a key with it, renews it after 3 s, and
// reads the key at 6 s. The lease may not end before 8 s.
func leased() []porcupine.Operation {
	return []porcupine.Operation{
		did(0, 1, call{verb: grant, lease: 7, ttl: 5 * time.Second}, rev(0)),
		did(1, 2, call{verb: put, key: "k", value: "v", lease: 7}, rev(1)),
		did(3, 4, call{verb: keepAlive, lease: 7}, rev(1)),
		did(6, 6, call{verb: get, key: "k"}, found(1, held)),
	}
}

// written is the journal of leased.
func written() journal {
	return journal{1: {{key: "k", value: "v", lease: 7}}}
}

// expired is the journal with the expiry of the lease.
func expired() journal {
	j := written()
	j[2] = []event{{key: "k", gone: true}}
	return j
}

// histories are correct and wrong ones. Each is judged with its journal and
// without any, where it is wrong without one too.
var histories = []struct {
	name    string
	ops     []porcupine.Operation // after those of leased
	journal journal
	wrong   bool
	needs   bool // it is wrong only with the journal
}{
	{name: "as it should be", journal: written()},
	{
		name:    "expired on time",
		ops:     []porcupine.Operation{did(8, 9, call{verb: get, key: "k"}, found(2, record{}))},
		journal: expired(),
	},
	{
		name:    "expired early, seen by a read",
		ops:     []porcupine.Operation{did(6, 7, call{verb: get, key: "k"}, found(2, record{}))},
		journal: expired(), wrong: true,
	},
	{
		name:    "refused on time, the key gone",
		ops:     []porcupine.Operation{did(8, 9, call{verb: keepAlive, lease: 7}, noLease)},
		journal: expired(),
	},
	{
		name:    "refused early",
		ops:     []porcupine.Operation{did(6, 7, call{verb: keepAlive, lease: 7}, noLease)},
		journal: expired(), wrong: true,
	},
	{
		name: "renewed after its end was seen (L3)",
		ops: []porcupine.Operation{
			did(8, 9, call{verb: get, key: "k"}, found(2, record{})),
			did(10, 11, call{verb: keepAlive, lease: 7}, rev(2)),
		},
		journal: expired(), wrong: true,
	},
	{
		name: "renewed after its revoke was acknowledged (L3)",
		ops: []porcupine.Operation{
			did(7, 7, call{verb: revoke, lease: 7}, rev(2)),
			did(8, 8, call{verb: keepAlive, lease: 7}, rev(2)),
		},
		journal: expired(), wrong: true,
	},
	{
		name: "a revoke without an answer was done",
		ops: []porcupine.Operation{
			did(6, 7, call{verb: revoke, lease: 7}, noAnswer),
			did(7, 7, call{verb: get, key: "k"}, found(2, record{})),
		},
		journal: expired(),
	},
	{
		name: "put on a lease that is gone",
		ops: []porcupine.Operation{
			did(7, 7, call{verb: revoke, lease: 7}, rev(2)),
			did(8, 8, call{verb: put, key: "l", value: "w", lease: 7}, rev(3)),
		},
		journal: expired(), wrong: true,
	},
	{
		name: "the lease ends and its key stays (L6)",
		ops: []porcupine.Operation{
			did(7, 7, call{verb: revoke, lease: 7}, rev(1)),
			did(8, 8, call{verb: get, key: "k"}, found(1, held)),
		},
		journal: written(), wrong: true,
	},
	{
		name: "a revoke of what has ended is acknowledged",
		ops: []porcupine.Operation{
			did(7, 7, call{verb: revoke, lease: 7}, rev(2)),
			did(8, 8, call{verb: revoke, lease: 7}, rev(2)),
		},
		journal: expired(), wrong: true,
	},
	{
		name: "a stale read",
		ops: []porcupine.Operation{
			did(6, 6, call{verb: put, key: "l", value: "w"}, rev(2)),
			did(7, 7, call{verb: get, key: "l"}, found(1, record{})),
		},
		journal: journal{1: written()[1], 2: {{key: "l", value: "w"}}}, wrong: true,
	},
	{
		name:    "an acknowledged write that is lost (S2)",
		ops:     []porcupine.Operation{did(6, 6, call{verb: put, key: "l", value: "w"}, rev(2))},
		journal: written(), wrong: true, needs: true,
	},
	{
		name: "a write without an answer that never happened",
		ops: []porcupine.Operation{
			did(6, 6, call{verb: put, key: "l", value: "w"}, noAnswer),
		},
		journal: written(),
	},
	{
		name: "a delete without an answer that happened late",
		ops: []porcupine.Operation{
			did(6, 6, call{verb: remove, key: "k"}, noAnswer),
			did(6, 6, call{verb: get, key: "k"}, found(1, held)),
			did(7, 7, call{verb: get, key: "k"}, found(2, record{})),
		},
		journal: expired(),
	},
	{
		name: "a delete that finds nothing, at the revision of an expiry",
		ops: []porcupine.Operation{
			did(8, 9, call{verb: remove, key: "k"}, answer{outcome: differed, revision: 2}),
		},
		journal: expired(),
	},
	{
		name: "a delete that finds nothing where there is something",
		ops: []porcupine.Operation{
			did(7, 7, call{verb: remove, key: "k"}, answer{outcome: differed, revision: 1}),
		},
		journal: written(), wrong: true,
	},
	{
		name: "two swaps of one revision",
		ops: []porcupine.Operation{
			did(6, 6, call{verb: swap, key: "k", value: "w", expect: 1}, rev(2)),
			did(7, 7, call{verb: swap, key: "k", value: "x", expect: 1}, rev(3)),
		},
		journal: journal{
			1: written()[1], 2: {{key: "k", value: "w"}}, 3: {{key: "k", value: "x"}},
		}, wrong: true,
	},
	{
		name: "a swap that differed where it should not",
		ops: []porcupine.Operation{
			did(6, 6, call{verb: swap, key: "k", value: "w", expect: 1},
				answer{outcome: differed, revision: 1}),
		},
		journal: written(), wrong: true,
	},
}

// TestModelNotices judges histories of which some are wrong: the model must
// refuse these, and no others.
func TestModelNotices(t *testing.T) {
	for _, x := range histories {
		t.Run(x.name, func(t *testing.T) {
			ops := append(leased(), x.ops...)
			if ok := legal(ops, x.journal); ok == x.wrong {
				t.Errorf("with the journal: linearizable is %v", ok)
			}
			if ok := legal(ops, nil); ok == (x.wrong && !x.needs) {
				t.Errorf("without a journal: linearizable is %v", ok)
			}
		})
	}
}

func legal(ops []porcupine.Operation, j journal) bool {
	return porcupine.CheckOperations(newModel(0, j), complete(ops, j))
}

// TestOnly leaves revisions of other keys out and renumbers the rest.
func TestOnly(t *testing.T) {
	j := journal{
		5: {{key: "other", value: "x"}}, 6: {{key: "k", value: "v"}}, 7: {{key: "other", value: "y"}},
		8: {{key: "k", value: "w"}},
	}
	ops, kept := only("k", []porcupine.Operation{
		did(0, 1, call{verb: put, key: "k", value: "v"}, rev(6)),
		did(1, 2, call{verb: get, key: "k"}, found(7, record{"v", 6, 6, 1, 0})),
		did(2, 3, call{verb: swap, key: "k", value: "w", expect: 6}, rev(8)),
	}, j)
	if kept.last() != 2 || !legal(ops, kept) {
		t.Errorf("%v %v", ops, kept)
	}
}

// TestAgreeNotices gives logs of watches that are wrong.
func TestAgreeNotices(t *testing.T) {
	right := func() []delivered {
		return []delivered{
			{event{key: "a", value: "1"}, 2},
			{event{key: "b", value: "2"}, 3},
			{event{key: "c", value: "3"}, 3},
			{event{key: "a", gone: true}, 4},
		}
	}
	for _, x := range []struct {
		name, want string
		change     func(events []delivered) []delivered
	}{
		{"nothing", "", func(e []delivered) []delivered { return e }},
		{"an event twice", "differ at event 1", func(e []delivered) []delivered {
			return slices.Insert(e, 1, e[0])
		}},
		{"a revision missing", "revision 3 after 1", func(e []delivered) []delivered { return e[1:] }},
		{
			"a revision split and its rest lost (T14)", "differ at event 2",
			func(e []delivered) []delivered { return slices.Delete(e, 2, 3) },
		},
		{"out of order", "revision 3 after 4", func(e []delivered) []delivered {
			slices.Reverse(e)
			return e
		}},
		{"another value", "differ at event 1", func(e []delivered) []delivered {
			e[1].value = "other"
			return e
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			changed := x.change(right())
			_, err := agree([]*watchLog{
				{name: "m1", events: right()}, {name: "m2", events: changed},
			}, 2)
			if got := errText(err); (x.want == "") != (got == "") || !strings.Contains(got, x.want) {
				t.Errorf("error %q, want %q", got, x.want)
			}
		})
	}
	twice := right()[:1]
	_, err := agree([]*watchLog{{name: "m1", events: append(twice, twice[0])}}, 2)
	if !strings.Contains(errText(err), "has a twice") {
		t.Errorf("an event twice everywhere: %v", err)
	}
}

// TestOverlapNotices gives tenures that are wrong.
func TestOverlapNotices(t *testing.T) {
	right := []tenure{{"a", 0, 2, 1}, {"c", 8, 9, 5}, {"b", 3, 7, 3}}
	if err := overlap(right); err != nil {
		t.Error(err)
	}
	for name, more := range map[string]tenure{
		"two holders":             {"d", 6, 7, 4},
		"tokens do not increase":  {"d", 10, 11, 5},
		"two holders: {who:c":     {"d", 9, 11, 6},
		"two holders: {who:a fro": {"d", 1, 8, 2},
	} {
		if err := overlap(append(right, more)); !strings.Contains(errText(err), name) {
			t.Errorf("with %+v: %v, want %q", more, err, name)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
