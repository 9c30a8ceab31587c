package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/logger"
)

func (a *app) leaseCommand() *cobra.Command {
	cmd := family("lease", "Grant, inspect, renew and revoke leases",
		a.leaseGrant(), a.leaseRevoke(), a.leaseTimeToLive(), a.leaseKeepAlive(), a.leaseList(),
		a.leaseDescribe(), a.leaseHandOver(), a.leaseResume(), a.leaseCheckToken(),
		a.leaseTTL(), a.leaseAttach(), a.leaseDetach(), a.leaseWatch())
	cmd.Long = `Grant, inspect, renew and revoke leases.

A lease is named by its ID, in hexadecimal digits, or by the name that it was granted with.
What can be an ID is one: before a name such as "cafe" put "name:".`
	return cmd
}

// parseLease reads what names a lease: an ID, which is always written in hexadecimal, as etcdctl
// does, or what cannot be one, or has "name:" before it, as its name. bad says what an ID was
// given as.
func parseLease(s, bad string) (*pb.LeaseRef, error) {
	name, said := strings.CutPrefix(s, "name:")
	id, err := strconv.ParseInt(s, 16, 64)
	switch {
	case said && name == "":
		return nil, badArgs("%q has no name", s)
	case err == nil && !said:
		return &pb.LeaseRef{Id: id}, nil
	case s == "" || errors.Is(err, strconv.ErrRange):
		return nil, badArgs("%s (%w), expecting ID in Hex", bad, err)
	default:
		return &pb.LeaseRef{Name: name}, nil
	}
}

// leaseArg is the argument that names the lease with a name: the name, or "name:" and the name if
// that can be read as an ID or begins with "name:" itself.
func leaseArg(name string) string {
	if r, err := parseLeaseArg(name); err == nil && r.Name == name {
		return name
	}
	return "name:" + name
}

// parseLeaseArg is parseLease for an argument.
func parseLeaseArg(s string) (*pb.LeaseRef, error) { return parseLease(s, "bad lease ID arg") }

// A leaseCall asks the cluster something about one lease.
type leaseCall func(
	ctx context.Context, c *clientv3.Client, id clientv3.LeaseID) (answer, error)

// eachLease makes a call about each lease of the arguments, and shows its answer. It goes on after
// a failure, and fails with all of them.
func (a *app) eachLease(
	args []string, limit func() (context.Context, context.CancelFunc), do leaseCall,
) error {
	refs := make([]*pb.LeaseRef, len(args))
	for i, arg := range args {
		var err error
		if refs[i], err = parseLeaseArg(arg); err != nil {
			return err
		}
	}
	c, err := a.open()
	if err != nil {
		return err
	}
	defer c.Close()
	go a.tellLost(c) // the limit may be none
	var failed []error
	for i, ref := range refs {
		ctx, cancel := limit()
		id, err := leaseID(ctx, c, ref)
		var ans answer
		if err == nil {
			ans, err = do(ctx, c, id)
		}
		cancel()
		if err == nil {
			err = a.show(ans)
		}
		if err != nil && len(refs) > 1 {
			err = withCode(exitCode(err), fmt.Errorf("%s: %w", readable(args[i]), err))
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return fault.Join(failed...)
}

// leaseID returns the ID of a lease. Which lease has a name is asked when the command begins: what
// it does then it does to that lease, also if another gets the name meanwhile.
func leaseID(
	ctx context.Context, c *clientv3.Client, r *pb.LeaseRef,
) (clientv3.LeaseID, error) {
	if r.Name == "" {
		return clientv3.LeaseID(r.Id), nil
	}
	l, err := nativeLeases(c).Describe(ctx, &pb.DescribeRequest{Name: r.Name})
	if err != nil {
		return 0, nativeError(err)
	}
	return clientv3.LeaseID(l.Lease.Id), nil
}

func (a *app) leaseGrant() *cobra.Command {
	var more grantFlags
	cmd := &cobra.Command{
		Use:   "grant <ttl>",
		Short: "Grant a lease; the TTL is in seconds, or a duration such as 500ms",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("lease grant command needs TTL argument")
			}
			ttl, err := strconv.ParseInt(args[0], 10, 64)
			ms, wrong := parseTTL(args[0])
			if err != nil && wrong != nil {
				return badArgs("bad TTL (%w)", err)
			}
			if cmd.Flags().Changed("name") && more.name == "" {
				return badArgs("--name is empty: without a name the lease would exclude nobody")
			}
			if more.set() || err != nil {
				if wrong != nil {
					return wrong
				}
				return a.grantNamed(ms, &more)
			}
			return a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := grantOnce(ctx, clientv3.RetryLeaseClient(c), ttl)
				if err != nil {
					return answer{}, fmt.Errorf("failed to grant lease (%w)", err)
				}
				return showGrant(resp), nil
			})
		},
	}
	more.add(cmd)
	return cmd
}

// grantOnce grants one lease, however often clientv3 repeats the request. clientv3's own Grant
// leaves the ID to the server, so after a lost answer it makes a second lease. A random ID that
// exists already is that of the first attempt.
func grantOnce(
	ctx context.Context, c etcdserverpb.LeaseClient, ttl int64,
) (*clientv3.LeaseGrantResponse, error) {
	id := 1 + rand.Int64N(math.MaxInt64)
	r, err := c.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{TTL: ttl, ID: id})
	if errors.Is(clientv3.ContextError(ctx, err), rpctypes.ErrLeaseExist) {
		var now *etcdserverpb.LeaseTimeToLiveResponse
		now, err = c.LeaseTimeToLive(ctx, &etcdserverpb.LeaseTimeToLiveRequest{ID: id})
		r = &etcdserverpb.LeaseGrantResponse{Header: now.GetHeader(), ID: id, TTL: now.GetGrantedTTL()}
	}
	if err != nil {
		return nil, clientv3.ContextError(ctx, err)
	}
	return &clientv3.LeaseGrantResponse{
		ResponseHeader: r.GetHeader(), ID: clientv3.LeaseID(r.ID), TTL: r.TTL, Error: r.Error,
	}, nil
}

func (a *app) leaseRevoke() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke <leaseID|name> ...",
		Short: "Revoke leases and delete the keys attached to them",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return badArgs("lease revoke command needs 1 argument")
			}
			return a.eachLease(args, a.commandContext, func(
				ctx context.Context, c *clientv3.Client, id clientv3.LeaseID,
			) (answer, error) {
				resp, err := c.Revoke(ctx, id)
				if err != nil {
					return answer{}, fmt.Errorf("failed to revoke lease (%w)", err)
				}
				return showRevoke(id, resp), nil
			})
		},
	}
}

func (a *app) leaseTimeToLive() *cobra.Command {
	var keys bool
	cmd := &cobra.Command{
		Use:   "timetolive <leaseID|name> ... [options]",
		Short: "Print the TTL and the remaining time of leases",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return badArgs("lease timetolive command needs lease ID as argument")
			}
			return a.eachLease(args, a.patientContext, func(
				ctx context.Context, c *clientv3.Client, id clientv3.LeaseID,
			) (answer, error) {
				var opts []clientv3.LeaseOption
				if keys {
					opts = append(opts, clientv3.WithAttachedKeys())
				}
				resp, err := c.TimeToLive(ctx, id, opts...)
				if err != nil {
					return answer{}, withCode(exitConnection, err)
				}
				return showTimeToLive(resp, keys), nil
			})
		},
	}
	cmd.Flags().BoolVar(&keys, "keys", false, "Get keys attached to this lease")
	return cmd
}

func (a *app) leaseList() *cobra.Command {
	var more listFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all live leases",
		RunE: func(_ *cobra.Command, _ []string) error {
			if more.set() {
				return a.listLong(&more)
			}
			return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := c.Leases(ctx)
				if err != nil {
					return answer{}, withCode(exitConnection, err)
				}
				return showLeases(resp), nil
			})
		},
	}
	more.add(cmd)
	return cmd
}

func (a *app) leaseKeepAlive() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "keep-alive [options] <leaseID|name> ...",
		Short: "Keep leases alive",
		Long: `Renews leases: one until it ends or this command does, and with --once as many as
there are arguments.`,
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return badArgs("lease keep-alive command needs lease ID as argument")
			case len(args) > 1 && !once:
				return badArgs("lease keep-alive renews several leases only with --once")
			case !once:
				ref, err := parseLeaseArg(args[0])
				if err != nil {
					return err
				}
				return a.keepAlive(ref)
			}
			return a.eachLease(args, a.patientContext, func(
				ctx context.Context, c *clientv3.Client, id clientv3.LeaseID,
			) (answer, error) {
				resp, err := renew(ctx, c, id)
				if errors.Is(err, context.DeadlineExceeded) && isBroken(c) {
					short, cancel := a.commandContext() // of a stream etcd's library logs nothing
					defer cancel()
					a.learnDialError(short, c)
				}
				if err != nil {
					return answer{}, withCode(exitConnection, err)
				}
				return showKeepAlive(resp), nil
			})
		},
	}
	cmd.Flags().BoolVar(&once, "once", false,
		"Resets the keep-alive time to its original value and exits immediately")
	return cmd
}

// renew renews a lease once. Of a stream that has ended before the request was sent etcd's library
// says io.EOF, and not why it has ended: such a renewal is tried again.
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

// keepAlive renews a lease until it ends or the process does.
func (a *app) keepAlive(ref *pb.LeaseRef) error {
	c, err := a.open()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.commandContext()
	id, err := leaseID(ctx, c, ref)
	cancel()
	if err != nil {
		return err
	}
	logger.SurviveBrokenPipe()
	go a.tellLost(c)
	var l *etcdLease
	for lives := true; lives; {
		renewed, stalled, err := a.renewals(clientv3.NewLease(c), id)
		if err != nil {
			return err
		}
		if renewed {
			l = &etcdLease{client: c, id: id} // it lived
		}
		if stalled && renewed {
			continue // a new stream goes to another member, if there is one
		}
		if lives, err = a.lives(c, id); err != nil {
			return err
		}
	}
	if _, ok := a.printer.(*simplePrinter); ok {
		a.say("lease %016x expired or revoked.\n", id)
		if how := a.howEnded(l); how != "" {
			a.complain("lease %016x has ended: %s\n", id, how)
		}
	}
	return nil
}

// renewals shows the renewals of a lease over one stream until they end, or until no answer has
// come for half of the TTL: a member that hangs keeps its connection, and etcd's library notices
// that too late for a short TTL.
func (a *app) renewals(
	c clientv3.Lease, id clientv3.LeaseID,
) (renewed, stalled bool, err error) {
	defer c.Close()
	renewals, err := c.KeepAlive(a.context(), id)
	if err != nil {
		return false, false, withCode(exitConnection, err)
	}
	late := time.NewTimer(time.Hour) // until a TTL is known
	defer late.Stop()
	for {
		select {
		case r, ok := <-renewals:
			if !ok {
				return renewed, false, nil
			}
			renewed = true
			late.Reset(time.Duration(r.TTL) * time.Second / 2)
			if err := a.show(showKeepAlive(r)); err != nil && !errors.Is(err, syscall.EPIPE) {
				return renewed, false, err
			}
		case <-late.C:
			return renewed, true, nil
		}
	}
}

// lives reports whether there is a lease: etcd's library ends the renewals also when it has met
// nobody for too long.
func (a *app) lives(c *clientv3.Client, id clientv3.LeaseID) (bool, error) {
	ctx, cancel := a.commandContext()
	defer cancel()
	r, err := c.TimeToLive(ctx, id)
	if err != nil {
		return false, withCode(exitConnection,
			fmt.Errorf("lease %016x is not renewed any more, and may have expired: %w", id, err))
	}
	return r.TTL > 0, nil
}
