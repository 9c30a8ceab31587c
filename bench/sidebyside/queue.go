package main

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"
)

// An outcome is the result of a call and the time at which it returned.
type outcome struct {
	err error
	at  time.Time
}

func (o outcome) String() string {
	if o.err == nil {
		return "success"
	}
	return fmt.Sprintf("%q", status.Convert(o.err).Message())
}

// async runs a call in the background.
func async(call func() error) <-chan outcome {
	c := make(chan outcome, 1)
	go func() { c <- outcome{call(), time.Now()} }()
	return c
}

// since describes when something happened relative to the time at which a lease was found to be
// gone.
func since(gone, at time.Time) string {
	d := at.Sub(gone).Round(time.Millisecond)
	if d <= 10*time.Millisecond { // the polling interval
		return "as its lease went"
	}
	return fmt.Sprintf("%v after its lease went", d)
}

// entered waits until n candidates are queued for a name.
func entered(ctx context.Context, c *clientv3.Client, name string, n int64) error {
	for {
		r, err := c.Get(ctx, name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || r.Count == n {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// pair grants a long-lived lease and one that expires soon. Even on a busy machine, there is enough
// time for the candidates to enter the queue before it expires.
func pair(ctx context.Context, c *clientv3.Client) (long, short clientv3.LeaseID, err error) {
	l, err := c.Grant(ctx, 60)
	if err != nil {
		return 0, 0, err
	}
	s, err := c.Grant(ctx, 8)
	if err != nil {
		return 0, 0, err
	}
	return l.ID, s.ID, nil
}

// grace is the time allowed for a waiter to fail after its lease has ended.
const grace = 10 * time.Second

// awaitOutcome waits for a call and describes its outcome and its delay after from. late is true if
// the call did not return in time.
func awaitOutcome(o <-chan outcome, from time.Time) (seen string, late bool) {
	select {
	case got := <-o:
		return fmt.Sprintf("answered %v %s", got, since(from, got.at)), false
	case <-time.After(grace - time.Since(from)):
		return fmt.Sprintf("still waits after %v", grace), true
	}
}

// deadWaiter (T16) has a client wait for a lock held by another client. The waiter's 8-second lease
// is not renewed. The trial checks whether the wait fails when that lease expires. It tries the
// server's Lock and the library's Mutex. The Mutex waits in the client and so behaves the same with
// every server; its result is reported but does not count.
func deadWaiter(ctx context.Context, c *cluster, _ trial) (result, error) {
	client := c.members[0].client
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	holder, waiter, err := pair(ctx, client)
	if err != nil {
		return result{}, err
	}
	locks := v3lockpb.NewLockClient(client.ActiveConnection())
	lock := func(id clientv3.LeaseID) error {
		_, err := locks.Lock(ctx, &v3lockpb.LockRequest{Name: []byte("l"), Lease: int64(id)})
		return err
	}
	if err := lock(holder); err != nil {
		return result{}, err
	}
	server := async(func() error { return lock(waiter) })
	if err := entered(ctx, client, "l", 2); err != nil {
		return result{}, err
	}
	m, err := libraryWaiter(ctx, client, holder, waiter)
	if err != nil {
		return result{}, err
	}
	if err := entered(ctx, client, "l", 1); err != nil {
		return result{}, err
	}
	gone := time.Now()
	seen, late := awaitOutcome(server, gone)
	library, _ := awaitOutcome(m, gone)
	seen = fmt.Sprintf("v3lock: %s; concurrency.Mutex: %s", seen, library)
	return result{shown: late, seen: seen}, nil
}

// libraryWaiter queues for a second lock through clientv3's concurrency package.
func libraryWaiter(
	ctx context.Context, c *clientv3.Client, holder, waiter clientv3.LeaseID,
) (<-chan outcome, error) {
	mutex := func(id clientv3.LeaseID) (*concurrency.Mutex, error) {
		s, err := concurrency.NewSession(c, concurrency.WithLease(id))
		if err != nil {
			return nil, err
		}
		s.Orphan() // stops its renewals, as if the client were disconnected
		return concurrency.NewMutex(s, "m"), nil
	}
	first, err := mutex(holder)
	if err != nil {
		return nil, err
	}
	if err := first.Lock(ctx); err != nil {
		return nil, err
	}
	second, err := mutex(waiter)
	if err != nil {
		return nil, err
	}
	o := async(func() error { return second.Lock(ctx) })
	return o, entered(ctx, c, "m", 2)
}

// deadWinner (T17) has one candidate lead while another campaigns with an 8-second lease that is
// not renewed. A second after that lease has ended, the leader resigns. The trial checks whether
// the other candidate is still elected.
func deadWinner(ctx context.Context, c *cluster, _ trial) (result, error) {
	client := c.members[0].client
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first, second, err := pair(ctx, client)
	if err != nil {
		return result{}, err
	}
	elections := v3electionpb.NewElectionClient(client.ActiveConnection())
	campaign := func(id clientv3.LeaseID, value string) (*v3electionpb.LeaderKey, error) {
		r, err := elections.Campaign(ctx, &v3electionpb.CampaignRequest{
			Name: []byte("e"), Lease: int64(id), Value: []byte(value),
		})
		return r.GetLeader(), err
	}
	leader, err := campaign(first, "first")
	if err != nil {
		return result{}, err
	}
	other := async(func() error {
		_, err := campaign(second, "second")
		return err
	})
	if err := entered(ctx, client, "e", 2); err != nil {
		return result{}, err
	}
	if err := entered(ctx, client, "e", 1); err != nil {
		return result{}, err
	}
	gone := time.Now()
	if err := pause(ctx, time.Second); err != nil {
		return result{}, err
	}
	if _, err := elections.Resign(ctx, &v3electionpb.ResignRequest{Leader: leader}); err != nil {
		return result{}, err
	}
	select {
	case o := <-other:
		seen := fmt.Sprintf("Campaign: %v %s", o, since(gone, o.at))
		if o.err == nil {
			_, err := elections.Leader(ctx, &v3electionpb.LeaderRequest{Name: []byte("e")})
			seen += fmt.Sprintf("; the leader then: %v", outcome{err: err})
		}
		return result{shown: o.err == nil, seen: seen}, nil
	case <-time.After(grace):
		return result{shown: true, seen: fmt.Sprintf("Campaign still waits after %v", grace)}, nil
	}
}

// deafObserver (T17) records what an observer receives when the leader resigns without another
// candidate. etcd's message cannot represent an election without a leader.
func deafObserver(ctx context.Context, c *cluster, _ trial) (result, error) {
	client := c.members[0].client
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	elections := v3electionpb.NewElectionClient(client.ActiveConnection())
	l, err := client.Grant(ctx, 60)
	if err != nil {
		return result{}, err
	}
	r, err := elections.Campaign(ctx, &v3electionpb.CampaignRequest{
		Name: []byte("o"), Lease: int64(l.ID), Value: []byte("only"),
	})
	if err != nil {
		return result{}, err
	}
	observed, err := elections.Observe(ctx, &v3electionpb.LeaderRequest{Name: []byte("o")})
	if err != nil {
		return result{}, err
	}
	if _, err := observed.Recv(); err != nil { // receives the first leader
		return result{}, err
	}
	if _, err := elections.Resign(ctx, &v3electionpb.ResignRequest{Leader: r.Leader}); err != nil {
		return result{}, err
	}
	next := async(func() error {
		_, err := observed.Recv()
		return err
	})
	select {
	case <-next:
		return result{seen: "answered within 5s that the leader resigned"}, nil
	case <-time.After(5 * time.Second):
		return result{shown: true, seen: "nothing within 5s of the leader's resignation"}, nil
	}
}

// borrowedLease (T18) has one client acquire a lock without a lease and keep it while another
// client waits. It measures when the other client gets the lock.
func borrowedLease(ctx context.Context, c *cluster, _ trial) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, 80*time.Second)
	defer cancel()
	locks := v3lockpb.NewLockClient(c.members[0].client.ActiveConnection())
	if _, err := locks.Lock(ctx, &v3lockpb.LockRequest{Name: []byte("b")}); err != nil {
		return result{}, err
	}
	began := time.Now()
	// The other client's lease has the same TTL and must outlast the first client's.
	if err := pause(ctx, 10*time.Second); err != nil {
		return result{}, err
	}
	_, err := locks.Lock(ctx, &v3lockpb.LockRequest{Name: []byte("b")})
	if ctx.Err() != nil {
		return result{seen: "one holder for 80s"}, nil
	}
	if err != nil {
		return result{}, err
	}
	seen := fmt.Sprintf("a second holder after %v", time.Since(began).Round(100*time.Millisecond))
	return result{shown: true, seen: seen + ", the first was not notified"}, nil
}
