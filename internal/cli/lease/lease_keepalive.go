package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/logger"
)

func (a commands) leaseKeepAlive() app.Command {
	var once bool
	return app.Command{
		Use: "keep-alive <leaseID|name> ...", Short: "Keep a lease alive, or renew leases once",
		Long: `Renew a lease until it ends or this command is interrupted. With --once, renew each
of the given leases once.`,
		Example: "lease keep-alive worker-7\nlease keep-alive --once worker-7 worker-8",
		Min:     1, Max: -1, Words: []app.WordList{app.LeaseWords},
		Flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&once, "once", false, "renew once, and exit")
		},
		Run: func(_ *cobra.Command, args, _ []string) error {
			switch {
			case len(args) > 1 && !once:
				return app.BadArgs("lease keep-alive accepts several leases only with --once")
			case once:
				return a.eachLease(args, a.PatientContext, a.renewOnce)
			}
			ref, err := app.ParseLeaseArg(args[0])
			if err != nil {
				return err
			}
			return a.keepAlive(ref)
		},
	}
}

func (a commands) renewOnce(
	ctx context.Context, c *clientv3.Client, id clientv3.LeaseID,
) (app.Answer, error) {
	resp, err := renew(ctx, c, id)
	if errors.Is(err, context.DeadlineExceeded) && app.IsBroken(c) {
		short, cancel := a.CommandContext() // etcd's library does not log stream errors
		defer cancel()
		a.LearnDialError(short, c)
	}
	if err != nil {
		return app.Answer{}, app.WithCode(app.ExitConnection, err)
	}
	return showKeepAlive(resp), nil
}

// renew renews a lease once. If a stream ended before the request was sent, etcd's library returns
// io.EOF instead of the reason. renew retries in that case.
func renew(
	ctx context.Context, c clientv3.Lease, id clientv3.LeaseID,
) (*clientv3.LeaseKeepAliveResponse, error) {
	for {
		resp, err := c.KeepAliveOnce(ctx, id)
		if !errors.Is(err, io.EOF) {
			return resp, err
		}
	}
}

// keepAlive renews a lease until the lease or the process ends.
func (a commands) keepAlive(ref *pb.LeaseRef) error {
	c, err := a.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.CommandContext()
	id, err := leaseID(ctx, c, ref)
	cancel()
	if err != nil {
		return err
	}
	logger.SurviveBrokenPipe()
	go a.ReportLost(c)
	lived := false
	for lives := true; lives; {
		renewed, stalled, err := a.renewals(clientv3.NewLease(c), id)
		if err != nil {
			return err
		}
		lived = lived || renewed
		if stalled && renewed {
			continue // a new stream uses another member, if one is available
		}
		if lives, err = a.leaseExists(c, id); err != nil {
			return err
		}
	}
	if a.Flags.Format == "simple" {
		a.Say("lease %016x expired or revoked.\n", id)
		if how := a.endReason(c, id); lived && how != "" {
			a.Warnf("lease %016x has ended: %s\n", id, how)
		}
	}
	return nil
}

// renewals prints the renewals of a lease over one stream. It returns when the renewals end, or
// when no response has arrived for half of the TTL. The second condition is needed because a hung
// member keeps its connection open, and etcd's library detects that too late for a short TTL.
func (a commands) renewals(
	c clientv3.Lease, id clientv3.LeaseID,
) (renewed, stalled bool, err error) {
	defer c.Close()
	renewals, err := c.KeepAlive(a.Background(), id)
	if err != nil {
		return false, false, app.WithCode(app.ExitConnection, err)
	}
	late := time.NewTimer(time.Hour) // until the TTL is known
	defer late.Stop()
	for {
		select {
		case r, ok := <-renewals:
			if !ok {
				return renewed, false, nil
			}
			renewed = true
			late.Reset(time.Duration(r.TTL) * time.Second / 2)
			if err := a.Show(showKeepAlive(r)); err != nil && !errors.Is(err, syscall.EPIPE) {
				return renewed, false, err
			}
		case <-late.C:
			return renewed, true, nil
		}
	}
}

// leaseExists reports whether a lease exists. The check is needed because etcd's library also ends
// renewals when it has not reached any member for too long.
func (a commands) leaseExists(c *clientv3.Client, id clientv3.LeaseID) (bool, error) {
	ctx, cancel := a.CommandContext()
	defer cancel()
	r, err := c.TimeToLive(ctx, id)
	if err != nil {
		return false, app.WithCode(app.ExitConnection,
			fmt.Errorf("lease %016x is no longer being renewed and may have expired: %w", id, err))
	}
	return r.TTL > 0, nil
}

// endReason returns the reason why a lease ended. It returns "" if the lease has not ended or the
// server does not know the reason.
func (a commands) endReason(c *clientv3.Client, id clientv3.LeaseID) string {
	ctx, cancel := a.CommandContext()
	defer cancel()
	service := app.NativeLeases(c)
	_, err := service.Describe(ctx, &pb.DescribeRequest{Id: int64(id)})
	if grpcstatus.Code(err) != codes.NotFound {
		return "" // a renewal would return more, but would extend the lease
	}
	r, _ := service.Renew(ctx, &pb.RenewRequest{Leases: []*pb.LeaseRef{{Id: int64(id)}}})
	for _, res := range r.GetResults() {
		if res.Cause != 0 {
			lost := &client.LostError{Cause: leases.Kind(res.Cause), Owner: res.By}
			if lost.Cause == leases.Revoked {
				lost.By, lost.Owner = res.By, ""
			}
			return strings.TrimPrefix(lost.Error(), "client: the lease is gone: ")
		}
	}
	return ""
}
