package lock

import (
	"context"
	"encoding/json"
	"errors"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	rule "leasehold.dev/internal/ticket"
	"leasehold.dev/lease"
)

// What follows the name in an election's keys outside the queue: the candidates, and the ID of the
// preferred candidate. In the queue's keys, a slash follows the name. These keys have a different
// character there, so they cannot be part of the queue.
const (
	beside     = "~"
	candidates = beside + "candidates/"
	preferred  = beside + "preferred"
)

// stand is a candidate's entry in the list, visible to other candidates.
type stand struct {
	ID       string `json:"id"`
	Priority int    `json:"priority"`

	lease lease.ID
	since int64 // create revision of the key
}

// standing is the list of an election's candidates. A watch keeps it up to date. Only one goroutine
// at a time may use it.
type standing struct {
	client    *client.Client
	name      string
	list      map[string]*stand // keyed by store key
	preferred string
	watch     *client.Watcher // nil if there is no watch
}

func (s *standing) close() {
	if s.watch != nil {
		s.watch.Close()
		s.watch = nil
	}
}

// read reads the current list and starts watching it.
func (s *standing) read(ctx context.Context) error {
	s.close()
	all := store.Prefix(s.name + beside).Range()
	r, err := s.client.Range(ctx, all)
	if err != nil {
		return err
	}
	s.list, s.preferred = make(map[string]*stand), ""
	for _, kv := range r.KVs {
		s.put(kv)
	}
	s.watch, err = s.client.WatchFrom(store.Watch{
		Key: all.Key, End: all.End, From: r.Revision + 1,
	})
	return err
}

// put applies a key. If the key does not describe a candidate, put removes it from the list. A
// deleted key, for example, has no lease and no value.
func (s *standing) put(kv store.KV) {
	c := &stand{lease: kv.Lease, since: kv.CreateRevision}
	switch {
	case kv.Key == s.name+preferred:
		s.preferred = string(kv.Value)
	case !rule.Is(s.name+candidates, kv.Key, int64(kv.Lease)):
		delete(s.list, kv.Key)
	case json.Unmarshal(kv.Value, c) == nil:
		s.list[kv.Key] = c
	}
}

// next waits for changes and applies them.
func (s *standing) next(ctx context.Context) error {
	if s.watch == nil {
		return s.read(ctx)
	}
	u, err := s.watch.Next(ctx)
	if errors.Is(err, client.ErrCompacted) {
		return s.read(ctx)
	}
	for _, e := range u.Events {
		s.put(e.KV)
	}
	return err
}

// await waits until the candidate with the lease own is first in the list or, if first is false,
// until it is no longer first. Before the first read, no candidate is first.
func (s *standing) await(ctx context.Context, own lease.ID, first bool) error {
	for (s.first() == own) != first {
		if err := s.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// first returns the lease of the first candidate, or 0 if there are no candidates.
func (s *standing) first() lease.ID {
	var best *stand
	for _, c := range s.list {
		if best == nil || s.before(c, best) {
			best = c
		}
	}
	if best == nil {
		return 0
	}
	return best.lease
}

// before reports whether a is ahead of b.
func (s *standing) before(a, b *stand) bool {
	if pa, pb := a.ID == s.preferred, b.ID == s.preferred; pa != pb && s.preferred != "" {
		return pa
	}
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	return a.since < b.since
}

// byID returns the candidate with the given ID, or nil.
func (s *standing) byID(id string) *stand {
	var found *stand
	for _, c := range s.list {
		if c.ID == id && (found == nil || c.since < found.since) {
			found = c
		}
	}
	return found
}

// stands reports whether a lease belongs to a candidate.
func (s *standing) stands(id lease.ID) bool {
	for _, c := range s.list {
		if c.lease == id {
			return true
		}
	}
	return false
}
