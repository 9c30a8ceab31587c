package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/members"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
)

// These constants name the brokers' group, the controller's election, and the prefix of the keys
// that store the partitions' leaders.
const (
	group      = "kafka/brokers"
	election   = "kafka/controller"
	partitions = "kafka/partitions/"
)

// assignment is the value of a partition's key. The epoch increases with each new leader, and the
// controller's epoch with each new controller.
type assignment struct {
	Leader          string      `json:"leader"`
	Epoch           int64       `json:"epoch"`
	ControllerEpoch lease.Token `json:"controllerEpoch"`
}

func leaderOf(value []byte) string {
	var a assignment
	_ = json.Unmarshal(value, &a) // an invalid value means no leader
	return a.Leader
}

// broker is a broker. In production it would be a separate process.
type broker struct {
	id     string
	demo   *demo
	c      *client.Client
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// start starts a broker, which registers and campaigns for controller.
func (d *demo) start(ctx context.Context, id string) (*broker, error) {
	c, err := client.New(d.cluster)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	b := &broker{id: id, demo: d, c: c, cancel: cancel}
	b.done.Go(func() {
		// A broker that is disconnected for longer than its TTL loses everything and starts over.
		for ctx.Err() == nil {
			if err := b.session(ctx); ctx.Err() == nil {
				d.log.Printf("%s is restarting: %v", id, err)
			}
		}
	})
	return b, nil
}

// stop ends the broker without notifying the cluster, as a crash would.
func (b *broker) stop() {
	b.cancel()
	b.c.Close()
	b.done.Wait()
}

// session runs one incarnation of the broker. Its membership and its candidacy share one lease.
func (b *broker) session(ctx context.Context) error {
	s, err := b.c.Open(ctx, client.Grant{TTL: b.demo.ttl, Owner: b.id})
	if err != nil {
		return err
	}
	defer s.Lease().Close() // the lease expires after its TTL in any case
	// The broker's previous registration and candidacy end with its old session, so the new session
	// waits for them to end.
	m, err := members.New(b.c, group).Register(ctx, s, b.id, nil)
	if err != nil {
		return err
	}
	me := lock.Candidate{ID: b.id, Value: []byte(b.id)}
	return lock.NewElection(b.c, election).Lead(m.Context(), s, me, b.control)
}

// control acts as the controller. It watches the group and reassigns the partitions of brokers that
// have left. It returns when this broker is no longer the controller.
func (b *broker) control(ctx context.Context, l *lock.Leading) error {
	b.demo.log.Printf("%s is the controller, epoch %d", b.id, l.Token())
	w, err := members.New(b.c, group).Watch(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	for live := make(map[string]bool); ; {
		events, err := w.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			live[e.Member.ID] = e.Change == members.Joined || e.Change == members.Updated
		}
		if err := b.assign(ctx, l, live); err != nil {
			return err
		}
	}
}

// assign assigns each partition without a live leader to the broker leading the fewest partitions.
func (b *broker) assign(ctx context.Context, l *lock.Leading, live map[string]bool) error {
	r, err := b.c.Range(ctx, store.Prefix(partitions).Range())
	if err != nil {
		return err
	}
	leads := make(map[string]int)
	now := make(map[string]store.KV)
	for _, kv := range r.KVs {
		now[kv.Key] = kv
		leads[leaderOf(kv.Value)]++
	}
	for i := range b.demo.partitions {
		key := partitions + strconv.Itoa(i)
		a := assignment{ControllerEpoch: l.Token()}
		if kv, ok := now[key]; ok {
			if err := json.Unmarshal(kv.Value, &a); err != nil {
				return err
			}
		}
		if live[a.Leader] {
			continue
		}
		a.Leader, a.Epoch, a.ControllerEpoch = fewest(live, leads), a.Epoch+1, l.Token()
		if a.Leader == "" {
			return nil // assign is called again when a broker joins
		}
		leads[a.Leader]++
		value, err := json.Marshal(a)
		if err != nil {
			return err
		}
		r, err := b.c.Txn(ctx, store.Txn{
			If:   []store.Compare{l.Condition()},
			Then: []store.Op{store.Put{Key: key, Value: value}},
		})
		if err == nil && !r.Succeeded {
			err = errDeposed
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var errDeposed = errors.New("another broker is the controller")

// fewest returns the live broker leading the fewest partitions.
func fewest(live map[string]bool, leads map[string]int) string {
	best := ""
	for _, id := range slices.Sorted(maps.Keys(live)) {
		if live[id] && (best == "" || leads[id] < leads[best]) {
			best = id
		}
	}
	return best
}
