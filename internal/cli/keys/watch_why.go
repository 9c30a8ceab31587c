package keys

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/cli/app"
)

// progressEvery is the interval between progress notifications with --progress-notify. It is the
// same as in etcd.
const progressEvery = 10 * time.Minute

// native returns the leasehold.v1 watch for the flags and arguments.
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

// watchWhy runs a watch that shows why keys were deleted. etcd's API does not report the reason.
func (a commands) watchWhy(f watchFlags, w watchArgs) error {
	ask, err := f.native(w)
	if err != nil {
		return app.WithCode(app.ExitBadArgs, err)
	}
	c, err := a.OpenNative()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.CommandContext()
	defer cancel()
	watcher, err := c.Watch(ctx, ask)
	if err != nil {
		return watchEnded(err)
	}
	for {
		u, err := watcher.Next(a.Background())
		if err != nil {
			return watchEnded(err)
		}
		if err := a.printReason(u, w.exec); err != nil {
			return err
		}
	}
}

// watchEnded adds an exit code to the error that ended a watch.
func watchEnded(err error) error {
	if errors.Is(err, client.ErrCompacted) {
		return app.WithCode(app.ExitInterrupted, err)
	}
	return app.WithCode(app.ExitConnection, err)
}

// printReason prints a watch update, and runs the user's command for each event.
func (a commands) printReason(u store.Update, command []string) error {
	if len(u.Events) == 0 {
		a.Say("progress notify: %d\n", u.Revision)
	}
	if err := a.Show(showWhy(u)); err != nil || len(command) == 0 {
		return err
	}
	for i := range u.Events {
		e := &u.Events[i]
		env := watchEnv(u.Revision, eventType(e), []byte(e.KV.Key), e.KV.Value)
		if e.Delete {
			env = append(env, "LEASEHOLD_WATCH_WHY="+e.Cause.String())
		}
		if e.Lease != 0 {
			env = append(env, fmt.Sprintf("LEASEHOLD_WATCH_LEASE=%016x", int64(e.Lease)))
		}
		if err := a.runForEvent(a.Background(), command, env); err != nil {
			return err
		}
	}
	return nil
}

// watchEnv returns the environment variables for the command of a watch. They are the same as in
// etcdctl.
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

// showWhy prints events like showWatch, with the reason after DELETE.
func showWhy(u store.Update) app.Answer {
	m := &pb.WatchResponse{Header: &pb.Header{Revision: u.Revision}}
	for i := range u.Events {
		m.Events = append(m.Events, eventOf(&u.Events[i]))
	}
	return app.ProtoAnswer(m, func(p *app.Page) {
		for i, e := range m.Events {
			p.Printf("%s", eventType(&u.Events[i]))
			if e.Kind == pb.Event_KIND_DELETE {
				p.Printf(" %s", strings.ReplaceAll(u.Events[i].Cause.String(), " ", "-"))
			}
			if e.Lease != 0 {
				p.Printf(" %016x", e.Lease)
			}
			p.Printf("\n")
			if e.PrevKv != nil {
				p.KV(app.EtcdKV(e.PrevKv))
			}
			p.KV(app.EtcdKV(e.Kv))
		}
	})
}

// eventOf converts an event back to its protobuf message.
func eventOf(e *store.Event) *pb.Event {
	m := &pb.Event{
		Kind: pb.Event_KIND_PUT, Lease: int64(e.Lease),
		Kv: app.NativeKV(&e.KV), PrevKv: app.NativeKV(e.Prev),
	}
	if e.Delete {
		m.Kind, m.Cause = pb.Event_KIND_DELETE, pb.Event_Cause(e.Cause)
	}
	return m
}
