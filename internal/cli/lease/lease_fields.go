package lease

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/pflag"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
	"leasehold.dev/internal/cli/app"
)

// This file contains the flags that set the fields of a lease, and the output that shows them. A
// new field is added here, and nowhere else in the CLI.

// grantFlags are the flags of lease grant that do not exist in etcdctl.
type grantFlags struct {
	name, owner string
	labels      []string
	lockDelay   time.Duration
	keepKeys    bool
	resumable   bool
	set         *pflag.FlagSet
}

func (f *grantFlags) register(fs *pflag.FlagSet) {
	f.set = fs
	fs.StringVar(&f.name, "name", "", "unique name of the lease")
	fs.StringVar(&f.owner, "owner", "", "owner, a label to display and filter by")
	labelFlag(fs, &f.labels, "label")
	fs.DurationVar(&f.lockDelay, "lock-delay", 0,
		"how long the name and the keys remain after the lease expires")
	fs.BoolVar(&f.keepKeys, "keep-keys", false,
		"detach the keys when the lease expires, and keep them")
	fs.BoolVar(&f.resumable, "resumable", false,
		"print a secret that lets another process resume the lease")
}

// native reports whether the flags require leasehold.v1 instead of etcd's API.
func (f *grantFlags) native() bool {
	return f.name != "" || f.owner != "" || len(f.labels) > 0 ||
		f.lockDelay != 0 || f.keepKeys || f.resumable
}

// request returns the request specified by the flags.
func (f *grantFlags) request(ttl int64) (*pb.GrantRequest, error) {
	labels, err := parseLabels(f.labels)
	if err == nil && f.lockDelay < 0 {
		err = app.BadArgs("--lock-delay must not be negative")
	}
	r := &pb.GrantRequest{
		TtlMs: ttl, Name: f.name, Owner: f.owner, Labels: labels, Resumable: f.resumable,
		LockDelayMs: app.MillisUp(f.lockDelay), RequestId: rand.Text(),
	}
	if f.keepKeys {
		r.AtExpiry = pb.AtExpiry_AT_EXPIRY_KEEP
	}
	return r, err
}

// leaseState returns "delayed" for a lease in its lock delay, and "alive" for any other lease.
func leaseState(l *pb.Lease) string {
	if l.Delayed {
		return "delayed"
	}
	return "alive"
}

var leaseHead = []string{"ID", "Name", "Owner", "TTL", "Remaining", "Keys", "State"}

func leaseRow(l *pb.Lease) []string {
	return []string{
		fmt.Sprintf("%016x", l.Id), l.Name, l.Owner,
		app.Millis(l.TtlMs), app.Millis(l.RemainingMs), fmt.Sprint(l.KeyCount), leaseState(l),
	}
}

// describeLease prints the properties of a lease that are set.
func describeLease(p *app.Page, l *pb.Lease) {
	line := func(name, value string) {
		if value != "" {
			p.Printf("%-11s%s\n", name, app.Readable(value))
		}
	}
	line("lease", fmt.Sprintf("%016x", l.Id))
	line("name", l.Name)
	line("owner", l.Owner)
	line("principal", l.Principal)
	for _, k := range slices.Sorted(maps.Keys(l.Labels)) {
		line("label", k+"="+l.Labels[k])
	}
	line("token", fmt.Sprint(l.Token))
	line("state", leaseState(l))
	line("ttl", app.Millis(l.TtlMs))
	line("remaining", app.Millis(l.RemainingMs))
	if l.LockDelayMs > 0 {
		line("lock delay", app.Millis(l.LockDelayMs))
	}
	if l.AtExpiry == pb.AtExpiry_AT_EXPIRY_KEEP {
		line("at expiry", "keys stay")
	}
	if l.Bound {
		line("bound", "to its key")
	}
	for _, h := range l.Holds {
		p.Printf("%-11s%s\n", "holds", heldText(h))
	}
	for _, k := range l.Keys {
		p.Printf("%-11s%q\n", "key", k)
	}
}

// leaseMessage converts a lease in an event back to its protobuf message.
func leaseMessage(l *leases.Info) *pb.Lease {
	m := &pb.Lease{
		Id: int64(l.ID), Token: uint64(l.Token), TtlMs: l.TTL.Milliseconds(),
		RemainingMs: l.Remaining.Milliseconds(), Name: l.Name, Owner: l.Owner,
		Principal: l.Principal, Labels: l.Labels, LockDelayMs: l.LockDelay.Milliseconds(),
		AtExpiry: pb.AtExpiry_AT_EXPIRY_DELETE, Delayed: l.Delayed, Bound: l.Bound,
	}
	if l.KeepKeys {
		m.AtExpiry = pb.AtExpiry_AT_EXPIRY_KEEP
	}
	return m
}
