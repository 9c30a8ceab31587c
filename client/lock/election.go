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

// ErrNoCandidate means that no candidate has the given ID, or that a candidate using etcd's client
// would lead before it.
var ErrNoCandidate = errors.New("lock: no candidate with this ID can lead next")

// Election elects one of several sessions as the leader. An Election and an etcd
// concurrency.Election exclude each other if they use the same store and the etcd election's prefix
// is this election's name. Its methods are safe for concurrent use.
//
// As in etcd, the leader is the candidate with the oldest key below "name/". Our own candidates
// wait in a separate list below "name~candidates/", ordered by preference, priority and age. The
// first candidate on this list takes a ticket behind the leader. It gives up the ticket if another
// candidate moves ahead of it. So our candidates lead in the order of the list, unless a candidate
// arrives just as the leadership becomes free. Candidates using etcd's client have no priority; our
// first candidate queues with them by age. A candidate never deposes the leader automatically; see
// [Leading.HandOver] and [Election.Depose].
type Election struct {
	client *client.Client
	name   string
}

// Candidate describes a session that campaigns for leadership.
type Candidate struct {
	// ID identifies the candidate, for example in a handover. The default is the lease's ID in hex.
	ID string
	// Value is shown to observers. It can be the candidate's address, for example.
	Value []byte
	// Priority ranks the candidate ahead of all candidates with a lower priority, even those that
	// arrived earlier.
	Priority int
}

// NewElection returns the election with the given name. It sends no request.
func NewElection(c *client.Client, name string) *Election { return &Election{c, name} }

func (e *Election) check() error { return tries.CheckName("election", e.name) }

// Campaign waits until the session leads. It fails promptly if the session ends, or if a client
// deletes the session's key in the queue (T16, T17). If the context ends first, Campaign withdraws
// the candidacy. It returns ErrInUse if the session already leads or is a candidate.
func (e *Election) Campaign(ctx context.Context, s *client.Session, c Candidate) (*Leading, error) {
	p, err := e.campaign(ctx, of(s), c)
	if err != nil {
		return nil, fault.In("lock: campaign", e.name, err)
	}
	return &Leading{&Held{ticket: p, name: e.name}, e}, nil
}

// Lead campaigns, runs f as the leader, and releases the leadership. The context passed to f is
// canceled when ctx ends, and before the cluster can make another candidate the leader. f must then
// return. If the leadership or the candidacy is lost while the session is still valid, for example
// because of [Election.Depose], Lead campaigns again, and calls f again when it wins. Otherwise it
// returns the error from the campaign or from f. If the session ended before f returned, the error
// includes the reason. f can release the leadership or hand it over, using its context.
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

// Prefer ranks a candidate ahead of all others, regardless of priority. The preference is
// permanent, and applies whenever the candidate campaigns. An empty ID removes the preference.
func (e *Election) Prefer(ctx context.Context, id string) error {
	err := e.check()
	if err == nil {
		_, err = e.client.Put(ctx, store.Put{Key: e.name + preferred, Value: []byte(id)})
	}
	return fault.In("lock: prefer", e.name, err)
}

// Depose makes a candidate the leader without the current leader's cooperation. It prefers the
// candidate permanently, waits until the candidate is next, and deletes the leader's key. The old
// leader learns of this ([client.ErrLost]) at about the same time as the new one, so for a moment
// both may believe that they lead. Their tokens distinguish them. If the leader cooperates, call
// [Election.Prefer] and let the leader release the leadership, or call [Leading.HandOver]. Depose
// returns ErrNoCandidate in the same cases as HandOver.
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

// Leading is this program's leadership of an election. Its methods are safe for concurrent use.
type Leading struct {
	*Held
	election *Election
}

// Proclaim changes the value that observers see. If the session no longer leads, Proclaim returns
// the error from Err if the loss is already known, and [client.ErrLost] otherwise.
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

// HandOver makes another candidate the leader and prefers it permanently; see [Election.Prefer]. It
// first waits until the candidate is next, and only then stops leading. If HandOver fails and l's
// context has not ended, l still leads. HandOver returns ErrNoCandidate if no candidate has the ID,
// or if a candidate using etcd's client is ahead of it.
func (l *Leading) HandOver(ctx context.Context, id string) error {
	return fault.In("lock: hand over leadership of", l.election.name, l.handOver(ctx, id))
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

// campaign campaigns until the session is at the head of the queue.
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

// run is the state of one candidate's campaign.
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
			if left, err = p.withdraw(ctx); left {
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

// errOutranked means that another candidate is ahead.
var errOutranked = errors.New("lock: outranked")

// waitAsFirst waits for the leadership as long as no other candidate is ahead of this one.
func (r *run) waitAsFirst(ctx context.Context, p *ticket) error {
	return either(ctx, p.wait, func(ctx context.Context) error {
		err := r.standing.await(ctx, r.queue.session.lease.ID(), false)
		if err == nil {
			err = errOutranked
		}
		return err
	})
}

// withdraw gives up the ticket if another ticket is still ahead of it. Otherwise it is too late,
// and the candidate becomes the leader. This ensures that a candidate at the head of the queue
// always leads.
func (p *ticket) withdraw(ctx context.Context) (left bool, err error) {
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
		case err != nil: // if the outcome is unknown, abandoning the ticket resolves it
			return false, err
		case r.Succeeded:
			p.handle.Close()
			p.session.keys.Remove(p.key)
			return true, nil
		}
	}
}
