package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/internal/load"
)

// silentLeases is the number of leases whose holder stops renewing.
const silentLeases = 50

// silence is one run of the workload: renewals stop, and the leader suffers faults until the leases
// end.
type silence struct {
	env *Env
	// observer is a connection to a member that is not killed. It is used to observe when leases
	// end.
	observer *load.Client
	// fault is called after each lease has been renewed for the last time. began is when the last
	// of these renewals was sent.
	fault func(ctx context.Context, began time.Time) error

	ended sample // how long after its last renewal each lease ended
	left  int    // leases that had not ended when the time limit was reached
}

// killPoints lists the times at which the leader is killed, in percent of the TTL. A service may
// record in its log, at some point, that a holder is silent. If the leader dies before that point,
// the time elapsed so far is lost.
var killPoints = []int{25, 50, 75}

// runDeadHolder measures when a dead holder's leases end, both when the leader is killed in the
// meantime and when leadership is transferred five times.
func runDeadHolder(ctx context.Context, e *Env) (Result, error) {
	more := []Metric{{"TTL", shortTTL * 1000, "ms"}, {"silent leases", silentLeases, "each"}}
	one := func(name string, s *silence) []Metric {
		return append(s.ended.metrics(name+", last renewal to end"),
			Metric{name + ", left at the cap", float64(s.left), "leases"})
	}
	for _, percent := range killPoints {
		s, took, err := e.silentThroughKill(ctx, shortTTL*time.Second*time.Duration(percent)/100)
		if err != nil {
			return Result{}, fmt.Errorf("leader killed at %d%%: %w", percent, err)
		}
		name := fmt.Sprintf("killed at %d%%", percent)
		more = append(more, one(name, s)...)
		more = append(more,
			Metric{name + ", kill to first write", load.Millis(took), "ms"},
			Metric{name + ", TTL + 500 + that", shortTTL*1000 + 500 + load.Millis(took), "ms"})
	}
	s, err := e.silentThroughMoves(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("leader moved: %w", err)
	}
	return Result{More: append(more, one(fmt.Sprintf("%d leader changes", leaderMoves), s)...)}, nil
}

// silentThroughKill kills the leader a given time after the last renewal. It also returns the
// duration of the failover.
func (e *Env) silentThroughKill(
	ctx context.Context, after time.Duration,
) (*silence, time.Duration, error) {
	r, err := e.Server.roles(ctx)
	if err != nil {
		return nil, 0, err
	}
	var eyes []*load.Client
	for _, m := range r.followers {
		c, err := dial([]string{m.endpoint}, 1)
		if err != nil {
			return nil, 0, err
		}
		defer c.Close()
		eyes = append(eyes, c)
	}
	var took time.Duration
	s := &silence{env: e, observer: eyes[0]}
	s.fault = func(ctx context.Context, began time.Time) error {
		if err := sleepUntil(ctx, began.Add(after)); err != nil {
			return err
		}
		at := time.Now()
		if err := r.leader.kill(); err != nil {
			return err
		}
		var probes []probe
		for _, c := range eyes {
			probes = append(probes, writeProbe(c))
		}
		all, err := firsts(ctx, probes, at, r.term)
		if err != nil {
			return err
		}
		took = slices.Min(all)
		return nil
	}
	if err := s.run(ctx); err != nil {
		return nil, 0, err
	}
	return s, took, e.Server.revive(ctx, r.leader)
}

// leaderMoves is the number of leadership transfers within one TTL.
const leaderMoves = 5

func (e *Env) silentThroughMoves(ctx context.Context) (*silence, error) {
	s := &silence{env: e, observer: e.Client}
	s.fault = func(ctx context.Context, began time.Time) error {
		for i := range leaderMoves {
			at := began.Add(time.Duration(i+1) * shortTTL * time.Second / (leaderMoves + 1))
			if err := sleepUntil(ctx, at); err != nil {
				return err
			}
			if err := e.Server.moveLeader(ctx); err != nil {
				return fmt.Errorf("change %d: %w", i+1, err)
			}
		}
		return nil
	}
	return s, s.run(ctx)
}

// run grants the leases with one key each, renews all of them one last time, calls disturb, and
// waits until all leases have ended.
func (s *silence) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Connections to a member that was killed earlier take a while to recover.
	if err := poll(ctx, time.Minute, s.env.awaitApplied); err != nil {
		return err
	}
	gone, err := load.WatchDeletions(ctx, s.observer.Watch(0), ending, silentLeases)
	if err != nil {
		return err
	}
	var followed error
	var wg sync.WaitGroup
	wg.Go(func() { followed = gone.Follow() })
	sent, err := s.grant(ctx)
	if err == nil {
		err = s.fault(ctx, sent[len(sent)-1])
	}
	if err == nil {
		select {
		case <-gone.All():
		case <-time.After(s.env.DrainCap):
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	cancel()
	wg.Wait()
	if err != nil {
		return errors.Join(err, followed)
	}
	return s.count(gone, sent)
}

// grant grants the leases and returns the time of each lease's last renewal.
func (s *silence) grant(ctx context.Context) ([]time.Time, error) {
	leases, err := s.env.grantMany(ctx, silentLeases, shortTTL)
	if err != nil {
		return nil, err
	}
	for i, id := range leases {
		r := &pb.PutRequest{Key: endingKey(i), Value: make([]byte, load.ValueSize), Lease: id}
		if err := s.env.put(ctx, i, r); err != nil {
			return nil, err
		}
	}
	return s.env.renewAll(ctx, leases)
}

// count records when the leases ended. It returns an error if a lease ended before its TTL had
// elapsed.
func (s *silence) count(gone *load.Deletions, sent []time.Time) error {
	var h load.Histogram
	if err := gone.Lateness(&h, sent, shortTTL*time.Second); err != nil {
		return err
	}
	for i := range sent {
		at, ok := gone.Seen(i)
		if !ok {
			s.left++
			continue
		}
		s.ended = append(s.ended, at.Sub(sent[i]))
	}
	return nil
}

func sleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-time.After(time.Until(at)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
