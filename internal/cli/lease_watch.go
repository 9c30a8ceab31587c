package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/leases"
)

// eventFlags say which events lease watch tells.
type eventFlags struct {
	prefix, owner string
	labels        []string
	within        time.Duration
	after         uint64
	resume        func() bool // whether after was given
}

func (f *eventFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.prefix, "prefix", "", "Only leases whose name begins with this")
	fs.StringVar(&f.owner, "owner", "", "Only leases that are, or were, this owner's")
	fs.StringArrayVar(&f.labels, "label", nil,
		"Only leases with this label, NAME=VALUE; may be repeated")
	fs.DurationVar(&f.within, "expiring-within", 0,
		"Also tell when a lease that nobody renews has no more than this left")
	fs.Uint64Var(&f.after, "after", 0,
		"Begin after the event with this number, 0 for the first of all (default: with what\n"+
			"happens from now on)")
	f.resume = func() bool { return fs.Changed("after") }
}

func (f *eventFlags) options() (leases.Watch, error) {
	labels, err := parseLabels(f.labels)
	if err == nil && f.within < 0 {
		err = badArgs("--expiring-within must not be below 0")
	}
	return leases.Watch{
		After: f.after, Resume: f.resume(), NamePrefix: f.prefix, Owner: f.owner, Labels: labels,
		ExpiringWithin: f.within,
	}, err
}

func (a *app) leaseWatch() *cobra.Command {
	var f eventFlags
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Watch the events of leases",
		Long: "Print the events of leases: granted, expired, revoked, handed over, resumed, a\n" +
			"change of the TTL, the end of a lock delay. Each event has a number, by which a\n" +
			"later watch goes on (--after); the members keep the last 16384. Events without a\n" +
			"number say when writes wait long for the cache of a lease, and when they no longer\n" +
			"do; the first ones name the caches that are slow now. The watch ends when it is\n" +
			"interrupted, or when the members no longer have the next event.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			return a.watchNative(func(ctx context.Context, c *client.Client) error {
				return a.watchLeases(ctx, c, o)
			})
		},
	}
	f.add(cmd)
	return cmd
}

// watchLeases prints events.
func (a *app) watchLeases(ctx context.Context, c *client.Client, o leases.Watch) error {
	begin, cancel := context.WithTimeout(ctx, a.flags.commandTimeout)
	defer cancel()
	w, err := c.LeaseEvents(begin, o)
	for err == nil {
		var u leases.Update
		if u, err = w.Next(ctx); err != nil {
			break
		}
		for i := range u.Events {
			if err := a.show(showLeaseEvent(&u.Events[i])); err != nil {
				return err
			}
		}
	}
	if errors.Is(err, client.ErrCompacted) {
		return withCode(exitInterrupted, err)
	}
	return withCode(exitConnection, err)
}

func showLeaseEvent(e *leases.Event) answer {
	m := eventMessage(e)
	return answer{json: protoJSON(m), proto: proto.Message(m), simple: func(p *page) {
		p.printf("%s %016x", eventLabel(e), m.Lease.Id)
		for _, x := range [][2]string{
			{"name", m.Lease.Name}, {"owner", m.Lease.Owner}, {"by", m.By},
		} {
			if x[1] != "" {
				p.printf(" %s %q", x[0], x[1])
			}
		}
		switch e.Kind {
		case leases.Granted, leases.TTLChanged:
			p.printf(" ttl %s", millis(m.Lease.TtlMs))
		case leases.Expiring:
			p.printf(" remaining %s", millis(m.Lease.RemainingMs))
		case leases.CacheSlow, leases.CacheSlowEnded:
			p.printf(" waited %s", millis(m.WaitedMs))
		}
		p.printf("\n")
	}, fields: func(p *page) {
		p.field("Seq", m.Seq)
		p.quoted("Type", strings.TrimPrefix(m.Kind.String(), "KIND_"))
		p.quoted("By", m.By)
		p.field("Revision", m.Revision)
		if m.WaitedMs != 0 {
			p.field("WaitedMs", m.WaitedMs)
		}
		p.lease(m.Lease)
	}}
}

// eventLabel is the number of an event, if it has one, and what it is.
func eventLabel(e *leases.Event) string {
	if e.Seq == 0 {
		return "- " + e.Kind.String()
	}
	return fmt.Sprint(e.Seq, " ", e.Kind)
}

// eventMessage is an event as it came over the wire.
func eventMessage(e *leases.Event) *pb.LeaseEvent {
	l := &e.Lease
	m := &pb.Lease{
		Id: int64(l.ID), Token: uint64(l.Token), TtlMs: l.TTL.Milliseconds(),
		RemainingMs: l.Remaining.Milliseconds(), Name: l.Name, Owner: l.Owner, Labels: l.Labels,
		LockDelayMs: l.LockDelay.Milliseconds(), Delayed: l.Delayed,
		AtExpiry: pb.AtExpiry_AT_EXPIRY_DELETE,
	}
	if l.KeepKeys {
		m.AtExpiry = pb.AtExpiry_AT_EXPIRY_KEEP
	}
	return &pb.LeaseEvent{
		Seq: e.Seq, Kind: pb.LeaseEvent_Kind(e.Kind), Lease: m, By: e.By, Revision: e.Revision,
		WaitedMs: e.Waited.Milliseconds(),
	}
}
