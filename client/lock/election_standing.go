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

// Keys of an election outside its queue: its candidates, and the ID of the preferred one. They
// start with a character that cannot follow the name in a key of the queue, where that is a slash.
const (
	beside     = "~"
	candidates = beside + "candidates/"
	preferred  = beside + "preferred"
)

// stand is a candidate as seen by others.
type stand struct {
	ID       string `json:"id"`
	Priority int    `json:"priority"`

	lease lease.ID
	since int64 // create revision of the key
}

// standing is the list of an election's candidates, kept up to date by a watch. It belongs to one
// goroutine at a time.
type standing struct {
	client    *client.Client
	name      string
	list      map[string]*stand // by key
	preferred string
	watch     *client.Watcher // nil for none
}

func (s *standing) close() {
	if s.watch != nil {
		s.watch.Close()
		s.watch = nil
	}
}

// read reads the current list, and starts to watch it.
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

// put applies a key. Keys that are not a candidate's are removed; a deleted key, for example, has
// no lease and no value.
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

// await waits until the candidate that holds the lease own leads the order (first), or no longer
// does (!first). No candidate leads before the first read.
func (s *standing) await(ctx context.Context, own lease.ID, first bool) error {
	for (s.first() == own) != first {
		if err := s.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// first returns the lease of the first candidate, or 0.
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

// before reports whether a comes before b.
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
