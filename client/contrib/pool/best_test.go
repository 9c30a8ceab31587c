package pool

import (
	"fmt"
	"slices"
	"testing"

	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// TestBest checks which ID an owner gets. It gets the ID that it had before. If that is taken, it
// gets one that was never leased or, if there is none, the one that has been free the longest. It
// never gets an ID that is held. Concurrent programs do not all try the same ID.
func TestBest(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		p := &Pool{prefix: "p/"}
		for i := range 20 {
			p.ids = append(p.ids, fmt.Sprintf("%02d", i))
		}
		ids := p.ids
		// notes returns the records of previous owners, newest first.
		notes := func(owner func(id string) string) (list []store.KV) {
			for i, id := range slices.Backward(ids) {
				if by := owner(id); by != "none" {
					list = append(list, store.KV{
						Key: p.was(id), Value: []byte(by), ModRevision: int64(100 - i),
					})
				}
			}
			return list
		}
		held := func(some []string) map[string]bool {
			out := make(map[string]bool)
			for _, id := range some {
				out[id] = true
			}
			return out
		}
		oneIs := func(by, some, others string) func(string) string {
			return func(id string) string {
				if id == some {
					return by
				}
				return others
			}
		}
		for _, x := range []struct {
			name  string
			held  []string
			owner func(id string) string
			as    string
			want  [][]string // groups of IDs, each in any order
		}{
			{"one that it had", nil, oneIs("me", "11", "none"), "me", [][]string{{"11"}}},
			{"its own is held", ids[11:12], oneIs("me", "11", "none"), "me", nil},
			{"one that nobody had", nil, oneIs("none", "11", "you"), "me", [][]string{{"11"}}},
			{"of nobody in particular", nil, oneIs("none", "11", ""), "", [][]string{{"11"}}},
			{"the longest free", nil, oneIs("you", "", "you"), "me", [][]string{ids[12:]}},
			{"two are left", ids[2:], oneIs("you", "", "you"), "me", [][]string{ids[:2]}},
			{"none is left", ids, oneIs("you", "", "you"), "me", nil},
		} {
			firsts := make(map[string]bool)
			for range 100 {
				got := p.best(ids, held(x.held), notes(x.owner), x.as)
				if n := min(8, 20-len(x.held)); len(got) != n {
					t.Fatalf("%s: got %d IDs, want %d", x.name, len(got), n)
				}
				for _, id := range got {
					if slices.Contains(x.held, id) {
						t.Fatalf("%s: got %s, which is held", x.name, id)
					}
				}
				left := got
				for _, part := range x.want {
					if !slices.Equal(slices.Sorted(slices.Values(left[:len(part)])), part) {
						t.Fatalf("%s: got %v, want %v", x.name, got, x.want)
					}
					left = left[len(part):]
				}
				if len(got) > 0 {
					firsts[got[len(got)-1]] = true
				}
			}
			if len(firsts) < 2 && len(x.held) < 20 {
				t.Errorf("%s: the order is always the same", x.name)
			}
		}
	})
}
