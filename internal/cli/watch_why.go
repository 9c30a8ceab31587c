package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/store"
)

// progressEvery is how often a watch with --progress-notify is told how far it is: as often as
// etcd does it.
const progressEvery = 10 * time.Minute

// native returns what the flags and words of a watch ask for, in leasehold.v1.
func (f *watchFlags) native(w watchArgs) (store.Watch, error) {
	ask := store.Watch{Key: w.keys[0], From: f.rev, PrevKV: f.prevKV}
	switch {
	case f.prefix && len(w.keys) == 2:
		return ask, errEndAndPrefix
	case f.prefix:
		ask.End = store.Prefix(ask.Key).End
	case len(w.keys) == 2:
		ask.End = w.keys[1]
	}
	if f.progressNotify {
		ask.Progress = progressEvery
	}
	return ask, nil
}

// watchWhy is a watch that tells why keys went, which etcd's API has no room for.
func (a *app) watchWhy(f watchFlags, w watchArgs) error {
	ask, err := f.native(w)
	if err != nil {
		return withCode(exitBadArgs, err)
	}
	c, err := a.openNative()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.commandContext()
	defer cancel()
	watcher, err := c.Watch(ctx, ask)
	if err != nil {
		return watchEnded(err)
	}
	for {
		u, err := watcher.Next(a.context())
		if err != nil {
			return watchEnded(err)
		}
		if err := a.tellWhy(u, w.exec); err != nil {
			return err
		}
	}
}

// watchEnded gives what ended a watch its exit code.
func watchEnded(err error) error {
	if errors.Is(err, client.ErrCompacted) {
		return withCode(exitInterrupted, err)
	}
	return withCode(exitConnection, err)
}

// tellWhy prints what a watch was told, and runs the user's command for each event.
func (a *app) tellWhy(u store.Update, command []string) error {
	if len(u.Events) == 0 {
		a.say("progress notify: %d\n", u.Revision)
	}
	if err := a.show(showWhy(u)); err != nil || len(command) == 0 {
		return err
	}
	for i := range u.Events {
		e := &u.Events[i]
		env := watchEnv(u.Revision, eventType(e), []byte(e.KV.Key), e.KV.Value)
		if e.Delete {
			env = append(env, "LEASEHOLD_WATCH_WHY="+e.Why.String())
		}
		if e.Lease != 0 {
			env = append(env, fmt.Sprintf("LEASEHOLD_WATCH_LEASE=%016x", int64(e.Lease)))
		}
		if err := a.runForEvent(a.context(), command, env); err != nil {
			return err
		}
	}
	return nil
}

// watchEnv is what the command of a watch finds in its environment, as etcdctl's does.
func watchEnv(revision int64, what string, key, value []byte) []string {
	return []string{
		fmt.Sprintf("ETCD_WATCH_REVISION=%d", revision),
		fmt.Sprintf("ETCD_WATCH_EVENT_TYPE=%q", what),
		fmt.Sprintf("ETCD_WATCH_KEY=%q", key),
		fmt.Sprintf("ETCD_WATCH_VALUE=%q", value),
	}
}

func eventType(e *store.Event) string {
	if e.Delete {
		return mvccpb.DELETE.String()
	}
	return mvccpb.PUT.String()
}

// showWhy shows events as showWatch does, with the reason after DELETE.
func showWhy(u store.Update) answer {
	m := &pb.WatchResponse{Header: &pb.Header{Revision: u.Revision}}
	for i := range u.Events {
		m.Events = append(m.Events, eventOf(&u.Events[i]))
	}
	return protoAnswer(m, func(p *page) {
		for i, e := range m.Events {
			p.printf("%s", eventType(&u.Events[i]))
			if e.Kind == pb.Event_KIND_DELETE {
				p.printf(" %s", strings.ReplaceAll(u.Events[i].Why.String(), " ", "-"))
			}
			if e.Lease != 0 {
				p.printf(" %016x", e.Lease)
			}
			p.printf("\n")
			if e.PrevKv != nil {
				p.kv(etcdKV(e.PrevKv))
			}
			p.kv(etcdKV(e.Kv))
		}
	})
}

// eventOf is an event as it came over the wire.
func eventOf(e *store.Event) *pb.Event {
	m := &pb.Event{
		Kind: pb.Event_KIND_PUT, Kv: kvOf(&e.KV), PrevKv: kvOf(e.Prev), Lease: int64(e.Lease),
	}
	if e.Delete {
		m.Kind, m.Why = pb.Event_KIND_DELETE, pb.Event_Why(e.Why)
	}
	return m
}

func kvOf(kv *store.KV) *pb.KeyValue {
	if kv == nil {
		return nil
	}
	return &pb.KeyValue{
		Key: []byte(kv.Key), Value: kv.Value, CreateRevision: kv.CreateRevision,
		ModRevision: kv.ModRevision, Version: kv.Version, Lease: int64(kv.Lease),
	}
}

// etcdKV is a key in the form in which etcd gives it.
func etcdKV(kv *pb.KeyValue) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{
		Key: kv.Key, Value: kv.Value, Lease: kv.Lease, Version: kv.Version,
		CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
	}
}
