package ticket_test

import (
	"slices"
	"testing"

	"leasehold.dev/internal/ticket"
)

// TestRule checks which keys are tickets in a queue, and that no key is in two queues.
func TestRule(t *testing.T) {
	for _, c := range []struct {
		prefix, key string
		lease       int64
		want        bool
	}{
		{"a/", "a/7f", 1, true},
		{"a/", "a/7f.12", 1, true},
		{"a/", "a/7f", 0, false},
		{"a/", "a/", 1, false},
		{"a/", "a/b/7f", 1, false},
		{"a/", "a/xyz", 1, false},
		{"a/", "a/7F", 1, false},
		{"a/", "b/7f", 1, false},
		{"a/", "a", 1, false},
		{"a~candidates/", "a~candidates/7f", 1, true},
	} {
		if got := ticket.Is(c.prefix, c.key, c.lease); got != c.want {
			t.Errorf("%q in the queue of %q, lease %d: %v", c.key, c.prefix, c.lease, got)
		}
		if c.want && ticket.Prefix(c.key) != c.prefix {
			t.Errorf("%q is in the queue of %q", c.key, ticket.Prefix(c.key))
		}
	}
	for prefix, want := range map[string]bool{
		"a/": true, "/": true, "a": false, "": false, "a/7": false, "lock:": true, "a.": false,
	} {
		if ticket.IsPrefix(prefix) != want {
			t.Errorf("%q can be a prefix: %v", prefix, !want)
		}
	}
}

// TestOrder checks that tickets are ordered by revision, and that the order is total.
func TestOrder(t *testing.T) {
	list := []ticket.Ticket{{3, "a/1"}, {1, "a/f"}, {3, "a/0"}, {2, "a/2"}}
	slices.SortFunc(list, ticket.Ticket.Compare)
	want := []ticket.Ticket{{1, "a/f"}, {2, "a/2"}, {3, "a/0"}, {3, "a/1"}}
	if !slices.Equal(list, want) || !list[2].Before(list[3]) || list[3].Before(list[3]) {
		t.Errorf("the order is %v", list)
	}
}

// keys returns all strings of up to four characters from a small set: characters that occur in IDs,
// and some that look as if they could.
func keys() []string {
	all := []string{""}
	for i := 0; i < len(all); i++ {
		for _, c := range []string{"/", "7", "f", "g", "."} {
			if len(all[i]) < 4 {
				all = append(all, all[i]+c)
			}
		}
	}
	return all
}

// TestOneQueue checks that no key is in two queues, and that a key alone determines the prefix of
// its queue. It tries all short keys with all their prefixes.
func TestOneQueue(t *testing.T) {
	tickets := 0
	for _, key := range keys() {
		var queues []string
		for n := range len(key) + 1 {
			if p := key[:n]; ticket.IsPrefix(p) && ticket.Is(p, key, 1) {
				queues = append(queues, p)
			}
		}
		want := ticket.Prefix(key)
		switch {
		case len(queues) > 1:
			t.Errorf("%q is in the queues %q", key, queues)
		case len(queues) == 1 && queues[0] != want:
			t.Errorf("%q is in the queue %q, of the prefix %q", key, queues[0], want)
		case len(queues) == 0 && want != "" && want != key:
			t.Errorf("%q is in no queue, and that of %q has a key like it", key, want)
		}
		tickets += len(queues)
	}
	if tickets == 0 {
		t.Error("no key is a ticket")
	}
}
