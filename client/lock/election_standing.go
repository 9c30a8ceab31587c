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

// What is beside the queue of an election: its candidates, and the ID of the preferred one.
// It begins with what no key of the queue, which begins with a slash, does.
const (
	beside     = "~"
	candidates = beside + "candidates/"
	preferred  = beside + "preferred"
)

// stand is a candidate as the others see it.
type stand struct {
	ID       string `json:"id"`
	Priority int    `json:"priority"`

	lease lease.ID
	since int64 // create revision of the key
}

// standing is the list of an election's candidates, followed from a revision on. It belongs
// to one goroutine at a time.
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

// read takes the standing as it is now, and follows it from then on.
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

// put takes note of a key. What is no candidate's is none: a key that went, for one, has no lease
// and no value.
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

// next takes the next changes.
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

// await waits until the candidate of a lease is the first, or until another is.
// Nobody is the first before it has read.
func (s *standing) await(ctx context.Context, own lease.ID, first bool) error {
	for (s.first() == own) != first {
		if err := s.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// first returns the lease of the candidate that is before all others, 0 if there is none.
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

// before reports whether a is before b.
func (s *standing) before(a, b *stand) bool {
	if pa, pb := a.ID == s.preferred, b.ID == s.preferred; pa != pb && s.preferred != "" {
		return pa
	}
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	return a.since < b.since
}

// byID returns the candidate of an ID, nil if there is none.
func (s *standing) byID(id string) *stand {
	var found *stand
	for _, c := range s.list {
		if c.ID == id && (found == nil || c.since < found.since) {
			found = c
		}
	}
	return found
}

// stands reports whether a lease is a candidate's.
func (s *standing) stands(id lease.ID) bool {
	for _, c := range s.list {
		if c.lease == id {
			return true
		}
	}
	return false
}
