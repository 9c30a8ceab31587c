package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/internal/cli/app"
)

// eventFlags select the events that lease watch prints.
type eventFlags struct {
	prefix, owner string
	labels        []string
	within        time.Duration
	after         uint64
	set           *pflag.FlagSet // to detect whether --after is set
}

func (f *eventFlags) register(fs *pflag.FlagSet) {
	f.set = fs
	fs.StringVar(&f.prefix, "prefix", "", "only leases whose names begin with this prefix")
	fs.StringVar(&f.owner, "owner", "", "only leases that have or had this owner")
	labelFlag(fs, &f.labels, "only leases with this label")
	fs.DurationVar(&f.within, "expiring-within", 0,
		"also print leases that are not being renewed and have at most this much time left")
	fs.Uint64Var(&f.after, "after", 0,
		"start after the event with this number; 0 starts at the first (default: only new events)")
}

func (f *eventFlags) options() (leases.Watch, error) {
	labels, err := parseLabels(f.labels)
	if err == nil && f.within < 0 {
		err = app.BadArgs("--expiring-within must be at least 0, not %v", f.within)
	}
	return leases.Watch{
		After: f.after, Resume: f.set.Changed("after"), NamePrefix: f.prefix, Owner: f.owner,
		Labels: labels, ExpiringWithin: f.within,
	}, err
}

func (a commands) leaseWatch() app.Command {
	var f eventFlags
	return app.Command{
		Use: "watch", Short: "Watch lease events",
		Long: `Print lease events: granted, expired, revoked, handed over, resumed, TTL changed,
lock delay ended. Each event has a number; a later watch can resume after it (--after). Members keep
the last 16384 events. Events without a number report that writes have started or stopped waiting
for the cache of a lease; the first of them list the caches that are slow when the watch starts. The
watch ends when it is interrupted, or when the members no longer have the next event.`,
		Example: "lease watch --prefix worker- --expiring-within 3s", Flags: f.register,
		Run: func(*cobra.Command, []string, []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			return a.WatchNative(func(ctx context.Context, c *client.Client) error {
				return a.watchLeases(ctx, c, o)
			})
		},
	}
}

// watchLeases prints lease events.
func (a commands) watchLeases(ctx context.Context, c *client.Client, o leases.Watch) error {
	begin, cancel := context.WithTimeout(ctx, a.Flags.CommandTimeout)
	defer cancel()
	w, err := c.LeaseEvents(begin, o)
	for err == nil {
		var u leases.Update
		if u, err = w.Next(ctx); err != nil {
			break
		}
		for i := range u.Events {
			if err := a.Show(showLeaseEvent(&u.Events[i])); err != nil {
				return err
			}
		}
	}
	if errors.Is(err, client.ErrCompacted) {
		return app.WithCode(app.ExitInterrupted, err)
	}
	return app.WithCode(app.ExitConnection, err)
}

func showLeaseEvent(e *leases.Event) app.Answer {
	m := eventMessage(e)
	return app.ProtoAnswer(m, func(p *app.Page) {
		p.Printf("%s %016x", eventLabel(e), m.Lease.Id)
		for _, x := range [][2]string{
			{"name", m.Lease.Name}, {"owner", m.Lease.Owner}, {"by", m.By},
		} {
			if x[1] != "" {
				p.Printf(" %s %q", x[0], x[1])
			}
		}
		switch e.Kind {
		case leases.Granted, leases.TTLChanged:
			p.Printf(" ttl %s", app.Millis(m.Lease.TtlMs))
		case leases.Expiring:
			p.Printf(" remaining %s", app.Millis(m.Lease.RemainingMs))
		case leases.CacheSlow, leases.CacheSlowEnded:
			p.Printf(" waited %s", app.Millis(m.WaitedMs))
		}
		p.Printf("\n")
	})
}

// eventLabel returns the kind of an event, preceded by its number if it has one.
func eventLabel(e *leases.Event) string {
	if e.Seq == 0 {
		return "- " + e.Kind.String()
	}
	return fmt.Sprint(e.Seq, " ", e.Kind)
}

// eventMessage converts an event back to its protobuf message.
func eventMessage(e *leases.Event) *pb.LeaseEvent {
	return &pb.LeaseEvent{
		Seq: e.Seq, Kind: pb.LeaseEvent_Kind(e.Kind), Lease: leaseMessage(&e.Lease), By: e.By,
		Revision: e.Revision, WaitedMs: e.Waited.Milliseconds(),
	}
}
