package lock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/tries"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
)

// ErrNoCandidate means that no candidate has the ID, or that a candidate of etcd's client would
// lead before it.
var ErrNoCandidate = errors.New("lock: no candidate with this ID can lead next")

// Election elects one of several sessions as the leader of a name. It and etcd's
// concurrency.Election, with the name as its prefix, exclude each other on the same store. Its
// methods may be called from any goroutine.
//
// The leader is the candidate with the oldest key below "name/", as in etcd. Our candidates wait in
// a separate list, below "name~candidates/", ordered by preference, priority and age. The first of
// them takes a ticket behind the leader, and gives it up for a candidate that comes before it in
// this order. So our candidates lead in this order, unless one arrives at the very moment when the
// lead becomes free. Candidates of etcd's client have no priority: our first candidate queues with
// them by age. No candidate deposes the leader by itself: see [Leading.HandOver] and
// [Election.Depose].
type Election struct {
	client *client.Client
	name   string
}

// Candidate describes a session that wants to lead.
type Candidate struct {
	// ID identifies the candidate for a hand-over. The default is the lease's ID in hex.
	ID string
	// Value is shown to observers of the leader, for example its address.
	Value []byte
	// Priority puts the candidate before all candidates with a lower priority, even if they arrived
	// first.
	Priority int
}

// NewElection returns the election with the given name. It sends nothing.
func NewElection(c *client.Client, name string) *Election { return &Election{c, name} }

func (e *Election) check() error { return tries.CheckName("election", e.name) }

// Campaign waits until the session leads. It fails promptly if the session ends, or if a client
// deletes the key in the queue (T16, T17). If the context ends first, Campaign withdraws the
// candidacy. ErrInUse means that the session already leads or is a candidate.
func (e *Election) Campaign(ctx context.Context, s *client.Session, c Candidate) (*Leading, error) {
	p, err := e.campaign(ctx, of(s), c)
	if err != nil {
		return nil, fault.In("lock: campaign", e.name, err)
	}
	return &Leading{&Held{ticket: p, name: e.name}, e}, nil
}

// Lead campaigns, runs f, and releases the lead. The context of f ends with the caller's, and
// before the cluster may give the lead to another candidate; f must return then. If the lead or the
// candidacy is lost while the session is valid, for example by [Election.Depose], Lead campaigns
// again, and calls f again when it wins. Otherwise it returns the error of the campaign, or the
// error of f and, if the session ended before f returned, the reason. f may release the lead or
// hand it over, using its context.
func (e *Election) Lead(
	ctx context.Context, s *client.Session, c Candidate,
	f func(ctx context.Context, l *Leading) error,
) error {
	for p := (tries.Backoff{}); ; {
		l, lost := e.Campaign(ctx, s, c)
		var err error
		if lost == nil {
			err, lost = l.run(ctx, func(ctx context.Context) error { return f(ctx, l) })
		}
		if !errors.Is(lost, client.ErrLost) || s.Err() != nil {
			return fault.Join(err, lost)
		}
		if over := p.Wait(ctx); over != nil {
			return fault.Join(err, over)
		}
	}
}

// Prefer puts a candidate before all others, regardless of their priorities, now and whenever it
// campaigns again. An empty ID removes the preference.
func (e *Election) Prefer(ctx context.Context, id string) error {
	err := e.check()
	if err == nil {
		_, err = e.client.Put(ctx, store.Put{Key: e.name + preferred, Value: []byte(id)})
	}
	return fault.In("lock: prefer", e.name, err)
}

// Depose gives the lead to a candidate without the leader's cooperation: it prefers the candidate
// permanently, waits until it is next, and deletes the leader's key. The old leader is notified
// ([client.ErrLost]) at about the same time as the new one, so for a moment both may believe that
// they lead. Tokens tell them apart. If the leader cooperates, call [Election.Prefer] and let it
// release the lead, or call [Leading.HandOver]. ErrNoCandidate is as for HandOver.
func (e *Election) Depose(ctx context.Context, id string) error {
	err := e.check()
	if err == nil {
		err = e.depose(ctx, id)
	}
	return fault.In("lock: depose the leader of", e.name, err)
}

var (
	_ client.Hold = (*Held)(nil)
	_ client.Hold = (*Leading)(nil)
)

// Leading is the lead of an election, held by this program. Its methods may be called from any
// goroutine.
type Leading struct {
	*Held
	election *Election
}

// Proclaim changes the value that observers see. If the session does not lead, it fails with the
// error of Err if already known, or with [client.ErrLost].
func (l *Leading) Proclaim(ctx context.Context, value []byte) error {
	if err := l.Err(); err != nil {
		return fault.In("lock: proclaim", l.election.name, err)
	}
	r, err := l.election.client.Txn(ctx, store.Txn{
		If:   []store.Compare{l.Condition()},
		Then: []store.Op{store.Put{Key: l.Key(), Value: value, KeepLease: true}},
	})
	if err == nil && !r.Succeeded {
		err = client.ErrLost
	}
	return fault.In("lock: proclaim", l.election.name, err)
}

// HandOver gives the lead to a candidate, which is preferred permanently: see [Election.Prefer]. It
// waits until the candidate is next, and only then stops leading. If HandOver fails while l's
// context has not ended, l still leads. ErrNoCandidate means that no candidate has the ID, or that
// a candidate of etcd's client is before it.
func (l *Leading) HandOver(ctx context.Context, id string) error {
	return fault.In("lock: hand over", l.election.name, l.handOver(ctx, id))
}

func (l *Leading) handOver(ctx context.Context, id string) error {
	s := l.election.succession()
	defer s.standing.close()
	if _, err := s.prefer(ctx, id); err != nil {
		return err
	}
	if err := s.awaitNext(ctx, id, l.revision); err != nil {
		return err
	}
	return l.Release(ctx)
}

// campaign takes the session to the head of the queue.
func (e *Election) campaign(ctx context.Context, s *session, c Candidate) (*ticket, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	if c.ID == "" {
		c.ID = fmt.Sprintf("%x", int64(s.lease.ID()))
	}
	value, err := json.Marshal(stand{ID: c.ID, Priority: c.Priority})
	if err != nil {
		return nil, err
	}
	own := &waitQueue{session: s, prefix: e.name + candidates, value: value}
	waiting, err := own.enter(ctx, false)
	if err != nil {
		return nil, err
	}
	defer waiting.abandon()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	there := waiting.context()
	defer context.AfterFunc(there, func() { stop(fault.Cause(there)) })()
	r := &run{
		queue:    waitQueue{session: s, prefix: e.name + "/", value: c.Value},
		standing: standing{client: e.client, name: e.name},
	}
	defer r.standing.close()
	return r.win(ctx)
}

// run is the campaign of one candidate.
type run struct {
	queue    waitQueue
	standing standing
}

func (r *run) win(ctx context.Context) (*ticket, error) {
	own := r.queue.session.lease.ID()
	for {
		if err := r.standing.await(ctx, own, true); err != nil {
			return nil, err
		}
		p, err := r.queue.enter(ctx, false)
		if err != nil {
			return nil, err
		}
		err = r.waitAsFirst(ctx, p)
		if errors.Is(err, errOutranked) {
			var left bool
			if left, err = p.stepBack(ctx); left {
				continue
			}
		}
		if err != nil {
			p.abandon()
			return nil, err
		}
		return p, nil
	}
}

// errOutranked means that another candidate is first.
var errOutranked = errors.New("lock: outranked")

// waitAsFirst waits for the lead while no other candidate is before this one.
func (r *run) waitAsFirst(ctx context.Context, p *ticket) error {
	return either(ctx, p.wait, func(ctx context.Context) error {
		err := r.standing.await(ctx, r.queue.session.lease.ID(), false)
		if err == nil {
			err = errOutranked
		}
		return err
	})
}

// stepBack gives up the ticket if another one is before it. Otherwise it is too late, and the
// ticket gets its turn. So there is never a candidate at the head that does not lead.
func (p *ticket) stepBack(ctx context.Context) (left bool, err error) {
	for {
		before, err := p.ahead(ctx)
		if err != nil {
			return false, err
		}
		if len(before) == 0 {
			return false, p.wait(ctx)
		}
		first := before[0]
		r, err := p.session.client.Txn(ctx, store.Txn{
			If: []store.Compare{
				p.condition(), store.Key(first.Key).CreateRevision(store.Equal, first.CreateRevision),
			},
			Then: []store.Op{store.Delete{Key: p.key}},
		})
		switch {
		case err != nil: // abandoning the ticket resolves an unknown outcome
			return false, err
		case r.Succeeded:
			p.handle.Close()
			p.session.keys.Remove(p.key)
			return true, nil
		}
	}
}
