package main

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// immortalLease (T9) grants an 8-second lease that is never renewed, and transfers leadership every
// 6 seconds. It measures when the lease ends.
func immortalLease(ctx context.Context, c *cluster, t trial) (result, error) {
	const ttl, every, limit = 8, 6 * time.Second, 40 * time.Second
	_, others, err := c.leader(ctx)
	if err != nil {
		return result{}, err
	}
	l, err := others[0].client.Grant(ctx, ttl)
	if err != nil {
		return result{}, err
	}
	granted, moves := time.Now(), 0
	for move := granted.Add(every); time.Since(granted) < limit; {
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return result{}, err
		}
		if there, err := exists(ctx, others[0].client, l.ID); err == nil && !there {
			break
		} // an error means that there is no leader, so retry
		if time.Now().Before(move) {
			continue
		}
		lead, others, err := c.leader(ctx)
		if err != nil {
			return result{}, err
		}
		s, err := others[0].client.Status(ctx, others[0].url)
		if err != nil {
			return result{}, err
		}
		if _, err := lead.client.MoveLeader(ctx, s.Header.MemberId); err != nil {
			return result{}, err
		}
		moves++
		move = move.Add(every)
		t.say("moved the lead from %s to %s", lead.name, others[0].name)
	}
	lived := time.Since(granted).Round(100 * time.Millisecond)
	if lived >= limit {
		seen := fmt.Sprintf("a lease of %d s is alive after %v and %d moves of the lead",
			ttl, limit, moves)
		return result{shown: true, seen: seen}, nil
	}
	// The lease may last a second longer because of the current leader change, and it may take
	// another second to detect its end.
	seen := fmt.Sprintf("a lease of %d s ended after %v and %d moves of the lead",
		ttl, lived, moves)
	return result{shown: lived > (ttl+2)*time.Second, seen: seen}, nil
}

// wokenLeader (T1) keeps 500 five-second leases alive through the followers. It stops the leader's
// process for 9 seconds, as a hung disk or a machine pause would, and another member becomes the
// leader. Then the process resumes. The trial counts the leases that the resumed leader ends
// although they have been renewed in the meantime.
func wokenLeader(ctx context.Context, c *cluster, t trial) (result, error) {
	lost, roundsLost := 0, 0
	for i := range t.tries {
		n, err := lostToStuckLeader(ctx, c, t)
		if err != nil {
			return result{}, fmt.Errorf("round %d: %w", i, err)
		}
		t.say("round %d: %d leases lost", i, n)
		lost += n
		if n > 0 {
			roundsLost++
		}
	}
	seen := fmt.Sprintf("%d of %d leases ended while their holders were valid, in %d of %d rounds",
		lost, t.tries*crowd, roundsLost, t.tries)
	return result{shown: lost > 0, seen: seen}, nil
}

const crowd, crowdTTL = 500, 5

// expiredTotal is the metric that counts the leases an etcd member has expired itself.
const expiredTotal = "etcd_debugging_server_lease_expired_total"

// lostToStuckLeader runs one round and returns the number of leases that ended too early.
func lostToStuckLeader(ctx context.Context, c *cluster, t trial) (int, error) {
	lead, others, err := c.leader(ctx)
	if err != nil {
		return 0, err
	}
	ids, err := grantMany(ctx, others[0].client, crowd, crowdTTL)
	if err != nil {
		return 0, err
	}
	k := newKeeper(ids, crowdTTL*time.Second)
	keeping, stop := context.WithCancel(ctx)
	kept := async(func() error { return k.run(keeping, others) })
	defer func() {
		stop()
		<-kept
	}()
	if err := pause(ctx, 2*time.Second); err != nil {
		return 0, err
	}
	expired := lead.metric(ctx, expiredTotal)
	if err := lead.Signal(syscall.SIGSTOP); err != nil {
		return 0, err
	}
	t.say("stopped %s", lead.name)
	err = pause(ctx, 9*time.Second)
	if err := lead.Signal(syscall.SIGCONT); err != nil {
		return 0, err
	}
	if err != nil {
		return 0, err
	}
	woken := time.Now()
	t.say("%s goes on; %d of %d holders are valid", lead.name, k.valid(), crowd)
	// A proposal by etcd's resumed leader can wait 7 s for its outcome. Only then does the leader
	// try the next leases on its list.
	if err := pause(ctx, 11*time.Second); err != nil {
		return 0, err
	}
	n, first := k.early()
	if n > 0 {
		t.say("the first was notified %v after the stop; %s counts %v leases that it expired meanwhile",
			first.Sub(woken), lead.name, lead.metric(ctx, expiredTotal)-expired)
	}
	return n, nil
}
