package cli

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/logger"
)

// electFlags say how to take part in an election, or what to do to it from outside.
type electFlags struct {
	listen           bool
	id               string
	priority         int
	prefer, handOver string
	set              *pflag.FlagSet // to tell an empty ID from none
}

func (f *electFlags) register(fs *pflag.FlagSet) {
	f.set = fs
	fs.BoolVarP(&f.listen, "listen", "l", false, "observation mode")
	fs.StringVar(&f.id, "id", "",
		"Stand as this candidate, for --prefer and --hand-over (default: the ID of the lease)")
	fs.IntVar(&f.priority, "priority", 0,
		"A candidate with a higher priority goes first")
	fs.StringVar(&f.prefer, "prefer", "", "Have this candidate lead next, whatever the priorities")
	fs.StringVar(&f.handOver, "hand-over", "", "Give the lead to this candidate now")
}

// native reports whether what is asked for is more than etcd's elections can do.
func (f *electFlags) native() bool {
	for _, name := range []string{"id", "priority", "prefer", "hand-over"} {
		if f.set.Changed(name) {
			return true
		}
	}
	return false
}

// check says what is wrong with the arguments.
func (f *electFlags) check(args []string) error {
	stands := f.set.Changed("id") || f.set.Changed("priority")
	prefer, handOver := f.set.Changed("prefer"), f.set.Changed("hand-over")
	switch {
	case prefer && handOver:
		return badArgs("elect takes either --prefer or --hand-over, not both")
	case (prefer || handOver) && (stands || f.listen || len(args) == 2):
		return badArgs("--prefer and --hand-over are given with the name of the election alone")
	case handOver && f.handOver == "":
		return badArgs("--hand-over needs the ID of a candidate")
	case stands && f.listen:
		return badArgs("--id and --priority are for who stands, not for -l")
	case stands && len(args) == 1:
		return badArgs("no proposal argument but -l not set")
	}
	return nil
}

// electNative does what is asked for over leasehold.v1.
func (a *app) electNative(f *electFlags, args []string) error {
	if err := f.check(args); err != nil {
		return err
	}
	c, err := a.openNative()
	if err != nil {
		return err
	}
	defer c.Close()
	if len(args) == 2 {
		return a.stand(c, args[0], lock.Candidate{
			ID: f.id, Priority: f.priority, Value: []byte(args[1]),
		})
	}
	ctx, cancel := a.commandContext()
	defer cancel()
	outside := lock.NewElection(c, args[0])
	if f.set.Changed("prefer") {
		if err := outside.Prefer(ctx, f.prefer); err != nil {
			return err
		}
		a.say("OK\n")
		return nil
	}
	if err := outside.Depose(ctx, f.handOver); err != nil {
		return err
	}
	now, err := outside.Leader(ctx)
	if err != nil || now.None() {
		return err
	}
	return a.showKey(ctx, c, now.Key)
}

// stand waits to be elected, as one of Leasehold's candidates, and leads until the user
// interrupts.
func (a *app) stand(c *client.Client, name string, who lock.Candidate) error {
	logger.SurviveBrokenPipe()
	ctx, stop := a.untilSignal()
	defer stop()
	host, _ := os.Hostname() // it is for people
	l, err := a.grantFor(ctx, c, client.Grant{
		TTL: electTTL * time.Second, Owner: host, Labels: map[string]string{"command": "elect"},
	})
	if err != nil {
		return withCode(exitConnection, err)
	}
	defer func() {
		ctx, cancel := a.commandContext()
		defer cancel()
		_ = l.Revoke(ctx) // with what hangs on it; it would end by itself
	}()
	told := a.tellWaiting(nativeTurn(c, name, l.ID()).text)
	lead, err := lock.NewElection(c, name).Campaign(ctx, l.Session(), who)
	told()
	if err != nil {
		return err
	}
	if err := a.showKey(ctx, c, lead.Key()); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-lead.Context().Done():
		why := context.Cause(lead.Context())
		return withCode(exitLost, fault.Because(errors.New("the lead is over"), why))
	}
}

// showKey shows a key as get does.
func (a *app) showKey(ctx context.Context, c *client.Client, key string) error {
	r, err := c.Range(ctx, store.Range{Key: key})
	if err != nil {
		return err
	}
	return a.show(showGet((*clientv3.GetResponse)(etcdRange(r))))
}

// etcdRange is an answer in the form in which etcd gives it, as far as a client knows it.
func etcdRange(r store.RangeResult) *etcdserverpb.RangeResponse {
	out := &etcdserverpb.RangeResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: r.Revision}, More: r.More, Count: r.Count,
	}
	for i := range r.KVs {
		out.Kvs = append(out.Kvs, etcdKV(kvOf(&r.KVs[i])))
	}
	return out
}
