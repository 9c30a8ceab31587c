package cluster

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// A history has what clients asked for and were told, with the instants. It is
// safe for concurrent use.
type history struct {
	mu  sync.Mutex
	ops []porcupine.Operation
}

// add records a call.
func (h *history) add(client int, c call, called time.Duration, a answer) {
	op := porcupine.Operation{
		ClientId: client, Input: c, Output: a, Call: int64(called), Return: int64(now()),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
}

// forever is the return of a call that may take effect at any later time.
const forever = math.MaxInt64

// complete returns the calls that porcupine judges: those whose outcome is
// unknown last for ever, unless the journal shows that they never happened; and
// each lease gets its expiry, which may not come before the TTL has passed since
// the last renewal that was acknowledged was sent (L1).
func complete(ops []porcupine.Operation, j journal) []porcupine.Operation {
	ttl := map[int64]time.Duration{}
	expiry := map[int64]int64{}
	revoked := map[int64]bool{}
	happened := effects(ops, j)
	var out []porcupine.Operation
	for _, op := range ops {
		c, a := op.Input.(call), op.Output.(answer)
		if a.outcome == unknown {
			op.Return = forever
			if !happened.maybe(c) {
				continue
			}
		}
		switch {
		case c.verb == grant:
			ttl[c.lease] = c.ttl
			expiry[c.lease] = op.Call + int64(c.ttl)
		case c.verb == keepAlive && a.outcome == done:
			// A client renews its own leases, after it has granted them.
			expiry[c.lease] = max(expiry[c.lease], op.Call+int64(ttl[c.lease]))
		case c.verb == revoke && a.outcome == done:
			revoked[c.lease] = true
		}
		out = append(out, op)
	}
	markEnded(ops, out, expiry)
	for id, at := range expiry {
		end := call{verb: expire, lease: id}
		if revoked[id] || !happened.maybe(end) {
			continue
		}
		out = append(out, porcupine.Operation{
			ClientId: expirer, Input: end, Call: at,
			Output: answer{outcome: unknown}, Return: forever,
		})
	}
	return out
}

// effect is what the journal shows that no acknowledged call did. Calls that
// cannot have done any of it are left out: if the search had the choice where
// they did nothing, it would not end.
type effect struct {
	journal journal
	values  map[string]bool // put
	keys    map[string]bool // deleted
	leases  map[int64]bool  // of keys that were deleted
}

func effects(ops []porcupine.Operation, j journal) effect {
	e := effect{j, map[string]bool{}, map[string]bool{}, map[int64]bool{}}
	acked := map[int64]bool{}
	for _, op := range ops {
		c, a := op.Input.(call), op.Output.(answer)
		if a.outcome == done && (c.verb == put || c.verb == swap || c.verb == remove) {
			acked[a.revision] = true
		}
	}
	holder := map[string]int64{}
	for _, revision := range slices.Sorted(maps.Keys(j)) {
		for _, ev := range j[revision] {
			if !ev.gone {
				holder[ev.key], e.values[ev.value] = ev.lease, true
				continue
			}
			if !acked[revision] {
				e.keys[ev.key], e.leases[holder[ev.key]] = true, true
			}
		}
	}
	return e
}

// maybe reports whether a call without an answer may have had an effect that
// anybody could see.
func (e effect) maybe(c call) bool {
	switch c.verb {
	case put, swap:
		return e.journal == nil || e.values[c.value]
	case remove:
		return e.journal == nil || e.keys[c.key]
	case revoke, expire:
		return e.journal == nil || e.leases[c.lease]
	}
	return false // nobody uses a lease whose grant got no answer
}

// markEnded sets which refusals may have been the first sign of a lease's end.
func markEnded(all, ops []porcupine.Operation, expiry map[int64]int64) {
	revoked := map[int64]int64{}
	for _, op := range all {
		c, a := op.Input.(call), op.Output.(answer)
		if c.verb == revoke && a.outcome == unknown {
			revoked[c.lease] = op.Call
		}
	}
	for i, op := range ops {
		c, a := op.Input.(call), op.Output.(answer)
		at, ok := revoked[c.lease]
		c.ended = a.outcome == refused && (op.Return >= expiry[c.lease] || ok && op.Return >= at)
		ops[i].Input = c
	}
}

// expirer is the client number of the service itself.
const expirer = 99

// linearizable judges a history, and returns what is wrong with it.
func linearizable(ops []porcupine.Operation, first int64, j journal) error {
	const limit = patience / 2 // of which a search takes next to nothing, mostly
	m := newModel(first, j)
	all := complete(ops, j)
	result, info := porcupine.CheckOperationsVerbose(m, all, limit)
	if result == porcupine.Ok {
		return nil
	}
	f, err := os.CreateTemp("", "leasehold-history-*.html")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := porcupine.Visualize(m, info, f); err != nil {
		return err
	}
	what := "not linearizable"
	if result == porcupine.Unknown {
		what = fmt.Sprintf("not found linearizable in %v", limit)
	}
	return fmt.Errorf("%d calls are %s, see %s; %s", len(ops), what, f.Name(), stuck(m, info, all))
}

// stuck tells how far the longest explanation of a history went, and what it
// could not explain.
func stuck(
	m porcupine.Model, info porcupine.LinearizationInfo, ops []porcupine.Operation,
) string {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, list := range partition {
			if len(list) > len(longest) {
				longest = list
			}
		}
	}
	type id struct {
		client int
		call   int64
	}
	s := m.Init()
	explained := map[id]bool{}
	for _, op := range longest {
		_, s = m.Step(s, op.Input, op.Output)
		explained[id{op.ClientId, op.Call}] = true
	}
	var left []string
	for _, op := range ops {
		if !explained[id{op.ClientId, op.Call}] {
			left = append(left, fmt.Sprintf("%v to %v: %s", time.Duration(op.Call),
				time.Duration(op.Return), m.DescribeOperation(op.Input, op.Output)))
		}
	}
	return fmt.Sprintf("explained %d of %d, which leaves %s and does not explain\n%s",
		len(longest), len(ops), m.DescribeState(s), strings.Join(left[:min(len(left), 10)], "\n"))
}

// ranks numbers the revisions that touch the workers' keys, so that those of the
// leases and locks beside them leave no gaps in what the model sees.
type ranks []int64

// only returns the journal of the keys with the prefix, its revisions and those
// in the calls renumbered.
func only(prefix string, ops []porcupine.Operation, j journal) ([]porcupine.Operation, journal) {
	var list ranks
	kept := journal{}
	for _, revision := range slices.Sorted(maps.Keys(j)) {
		if strings.HasPrefix(j[revision][0].key, prefix) {
			list = append(list, revision)
			kept[int64(len(list))] = j[revision]
		}
	}
	ops = slices.Clone(ops)
	for i, op := range ops {
		c, a := op.Input.(call), op.Output.(answer)
		c.expect = list.of(c.expect)
		a.revision = list.of(a.revision)
		a.pair.create, a.pair.mod = list.of(a.pair.create), list.of(a.pair.mod)
		ops[i].Input, ops[i].Output = c, a
	}
	return ops, kept
}

// of returns how many of the revisions are at or below this one.
func (r ranks) of(revision int64) int64 {
	n, found := slices.BinarySearch(r, revision)
	if found {
		n++
	}
	return int64(n)
}

// judge fails the test if the history is not linearizable (S1, L1, L3, L6).
func judge(t *testing.T, h *history, j journal) {
	t.Helper()
	began := now()
	ops, j := only(workPrefix, h.ops, j)
	if err := linearizable(ops, 0, j); err != nil {
		t.Error(err)
	}
	t.Logf("porcupine: %d calls judged in %v", len(h.ops), (now() - began).Round(time.Millisecond))
}
