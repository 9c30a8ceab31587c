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

// The names of the group of brokers and of the controller's election, and the prefix of the keys
// that say who leads a partition.
const (
	group      = "kafka/brokers"
	election   = "kafka/controller"
	partitions = "kafka/partitions/"
)

// assignment is the value of a partition's key. An epoch rises with each leader; the controller's
// with each controller.
type assignment struct {
	Leader          string      `json:"leader"`
	Epoch           int64       `json:"epoch"`
	ControllerEpoch lease.Token `json:"controllerEpoch"`
}

func leaderOf(value []byte) string {
	var a assignment
	_ = json.Unmarshal(value, &a) // a value that is none has no leader
	return a.Leader
}

// broker is one broker: a process of its own, in earnest.
type broker struct {
	id     string
	demo   *demo
	c      *client.Client
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// start starts a broker: it registers, and stands for controller.
func (d *demo) start(ctx context.Context, id string) (*broker, error) {
	c, err := client.New(d.cluster)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	b := &broker{id: id, demo: d, c: c, cancel: cancel}
	b.done.Go(func() {
		// A broker that was cut off for longer than its lease has lost all, and begins anew.
		for ctx.Err() == nil {
			if err := b.session(ctx); ctx.Err() == nil {
				d.log.Printf("%s begins anew: %v", id, err)
			}
		}
	})
	return b, nil
}

// stop ends the broker without a word to the cluster, as a crash does.
func (b *broker) stop() {
	b.cancel()
	b.c.Close()
	b.done.Wait()
}

// session is one incarnation of the broker: one lease, on which hang that it is there, and its
// place in the election.
func (b *broker) session(ctx context.Context) error {
	s, err := b.c.Open(ctx, client.Session{TTL: b.demo.ttl, Owner: b.id})
	if err != nil {
		return err
	}
	defer s.Lease().Close() // whatever the reason, the cluster ends it after its TTL
	// What a broker was before is gone when its session is: the new one waits for that.
	m, err := members.New(b.c, group).Register(ctx, s, b.id, nil)
	if err != nil {
		return err
	}
	me := lock.Candidate{ID: b.id, Value: []byte(b.id)}
	return lock.NewElection(b.c, election).Lead(m.Context(), s, me, b.control)
}

// control is the controller: it follows which brokers are there, and gives the partitions of
// brokers that went to others. It returns when this broker is not the controller any more.
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

// assign gives each partition without a live leader to the broker that leads the fewest.
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
			return nil // the next broker that comes is told
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

// fewest returns the live broker that leads the fewest partitions.
func fewest(live map[string]bool, leads map[string]int) string {
	best := ""
	for _, id := range slices.Sorted(maps.Keys(live)) {
		if live[id] && (best == "" || leads[id] < leads[best]) {
			best = id
		}
	}
	return best
}
