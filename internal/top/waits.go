package top

import (
	"fmt"
	"slices"
	"strings"

	"leasehold.dev/client/store"
	"leasehold.dev/internal/ticket"
	"leasehold.dev/lease"
)

// candidates is where those wait who want to lead: beside the election's own queue.
const candidates = "~candidates/"

// place is a ticket in a wait queue, and the lease that it is on.
type place struct {
	ticket.Ticket
	lease lease.ID
}

// queue is a wait queue, as client/lock and etcd's package concurrency keep them: below a prefix
// each lease has a key that is named by its ID, and the oldest one is the holder's.
type queue struct {
	name    string
	kind    string
	holder  *place
	waiters []place
	own, of []place // of the queue itself, of candidates
}

// queueOf returns the prefix of the queue in which a key is a ticket. Such a key ends with the ID
// of its lease, and maybe a dot and a number.
func queueOf(key string, id lease.ID) (prefix string, ok bool) {
	if id == 0 {
		return "", false
	}
	if i := strings.LastIndexByte(key, '.'); i >= 0 && i < len(key)-1 &&
		strings.Trim(key[i+1:], "0123456789") == "" {
		key = key[:i]
	}
	prefix, ok = strings.CutSuffix(key, fmt.Sprintf("%x", uint64(id)))
	if !ok {
		return "", false
	}
	rest := strings.TrimRight(prefix, "0")
	// Digits before the ID belong to it as zeros, or the key is of something else.
	if rest == "" || strings.ContainsAny(rest[len(rest)-1:], "123456789abcdef") {
		return "", false
	}
	return rest, true
}

// queuesOf finds the wait queues among keys, in the order of their names.
func queuesOf(kvs []store.KV) []*queue {
	all := make(map[string]*queue)
	for i := range kvs {
		kv := &kvs[i]
		prefix, ok := queueOf(kv.Key, kv.Lease)
		if !ok {
			continue
		}
		name, election := strings.CutSuffix(prefix, candidates)
		if !election {
			name = strings.TrimSuffix(prefix, "/")
		}
		q := all[name]
		if q == nil {
			q = &queue{name: name, kind: "lock"}
			all[name] = q
		}
		t := place{ticket.Ticket{Revision: kv.CreateRevision, Key: kv.Key}, kv.Lease}
		if election {
			q.kind = "election"
			q.of = append(q.of, t)
		} else {
			q.own = append(q.own, t)
		}
	}
	list := make([]*queue, 0, len(all))
	for _, q := range all {
		q.arrange()
		list = append(list, q)
	}
	slices.SortFunc(list, func(a, b *queue) int { return strings.Compare(a.name, b.name) })
	return list
}

// arrange says who holds and who waits. The leader and the first candidate of an election stand in
// the queue and among the candidates.
func (q *queue) arrange() {
	older := func(a, b place) int { return a.Compare(b.Ticket) }
	slices.SortFunc(q.own, older)
	slices.SortFunc(q.of, older)
	if len(q.own) > 0 {
		q.holder = &q.own[0]
		q.waiters = slices.Clone(q.own[1:])
	}
	for _, t := range q.of {
		if !slices.ContainsFunc(q.own, func(o place) bool { return o.lease == t.lease }) {
			q.waiters = append(q.waiters, t)
		}
	}
}
