package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/fault"
)

func (a commands) leaseCommand() *cobra.Command {
	cmd := a.Family("lease", "Manage leases",
		a.leaseGrant(), a.leaseRevoke(), a.leaseTimeToLive(), a.leaseKeepAlive(), a.leaseList(),
		leaseDescribe, leaseHandOver(), leaseResume(), leaseCheckToken(), leaseTTL(), leaseAttach(),
		leaseDetach(), a.leaseWatch())
	cmd.Long = `Grant, inspect, renew and revoke leases.

Refer to a lease by its ID, in hexadecimal digits, or by the name that it was granted with. A name
that could be an ID, such as "cafe", needs "name:" before it.`
	return cmd
}

// describeArg returns the request to describe the lease named by an argument.
func describeArg(arg string) (*pb.DescribeRequest, error) {
	r, err := app.ParseLeaseArg(arg)
	return &pb.DescribeRequest{Id: r.GetId(), Name: r.GetName()}, err
}

// checkLeaseArg checks the first argument.
func checkLeaseArg(args []string) error {
	_, err := app.ParseLeaseArg(args[0])
	return err
}

// A leaseCall makes a call that concerns one lease.
type leaseCall func(
	ctx context.Context, c *clientv3.Client, id clientv3.LeaseID,
) (app.Answer, error)

// eachLease makes a call for each lease in args, and prints each answer. It continues after
// failures, and returns all errors.
func (a commands) eachLease(
	args []string, limit func() (context.Context, context.CancelFunc), do leaseCall,
) error {
	refs := make([]*pb.LeaseRef, len(args))
	for i, arg := range args {
		var err error
		if refs[i], err = app.ParseLeaseArg(arg); err != nil {
			return err
		}
	}
	c, err := a.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	go a.ReportLost(c) // the call might have no timeout
	var failed []error
	for i, ref := range refs {
		ctx, cancel := limit()
		id, err := leaseID(ctx, c, ref)
		var ans app.Answer
		if err == nil {
			ans, err = do(ctx, c, id)
		}
		cancel()
		if err == nil {
			err = a.Show(ans)
		}
		if err != nil && len(refs) > 1 {
			err = app.WithCode(app.ExitCode(err), fmt.Errorf("%s: %w", app.Readable(args[i]), err))
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return fault.Join(failed...)
}

// leaseID resolves the name of a lease to its ID. The command then acts on that lease, even if the
// name has been given to another lease in the meantime.
func leaseID(
	ctx context.Context, c *clientv3.Client, r *pb.LeaseRef,
) (clientv3.LeaseID, error) {
	if r.Name == "" {
		return clientv3.LeaseID(r.Id), nil
	}
	l, err := app.NativeLeases(c).Describe(ctx, &pb.DescribeRequest{Name: r.Name})
	if err != nil {
		return 0, app.NativeError(err)
	}
	return clientv3.LeaseID(l.Lease.Id), nil
}

// labelFlag adds --label.
func labelFlag(fs *pflag.FlagSet, labels *[]string, usage string) {
	fs.StringArrayVar(labels, "label", nil, usage+", NAME=VALUE; may be repeated")
}

// parseLabels parses labels of the form NAME=VALUE.
func parseLabels(list []string) (map[string]string, error) {
	out := make(map[string]string)
	for _, l := range list {
		name, value, ok := strings.Cut(l, "=")
		if !ok {
			return nil, app.BadArgs("bad label %q, expecting NAME=VALUE", l)
		}
		out[name] = value
	}
	return out, nil
}

func (a commands) leaseGrant() app.Command {
	var f grantFlags
	return app.Command{
		Use: "grant <ttl>", Short: "Grant a lease",
		Long: `Grant a lease. The TTL is a number of seconds, or a duration such as 500ms.`,
		Example: "lease grant 30\n" +
			"lease grant 1500ms --name worker-7 --owner host-a --label zone=1",
		Min: 1, Max: 1, Flags: f.register,
		Run: func(_ *cobra.Command, args, _ []string) error {
			seconds, notSeconds := strconv.ParseInt(args[0], 10, 64)
			ms, err := app.ParseTTL(args[0])
			switch {
			case f.set.Changed("name") && f.name == "":
				return app.BadArgs("--name is empty: " +
					"a lease without a name does not exclude other holders")
			case !f.native() && notSeconds == nil: // the server decides
				return a.Ask(a.CommandContext,
					func(ctx context.Context, c *clientv3.Client) (app.Answer, error) {
						return grantOnce(ctx, clientv3.RetryLeaseClient(c), seconds)
					})
			case err != nil:
				return err
			}
			return a.grantNative(&f, ms)
		},
	}
}

func (a commands) grantNative(f *grantFlags, ttl int64) error {
	r, err := f.request(ttl)
	if err != nil {
		return err
	}
	if arg := app.LeaseArg(f.name); f.name != "" && arg != f.name {
		a.Warnf("Other commands interpret %s as an ID: refer to this lease as %s\n",
			app.Readable(f.name), app.Readable(arg))
	}
	return a.Ask(a.CommandContext, func(ctx context.Context, c *clientv3.Client) (app.Answer, error) {
		resp, err := app.NativeLeases(c).Grant(ctx, r)
		if err != nil {
			return app.Answer{}, app.NativeError(err)
		}
		granted := app.Millis(resp.Lease.TtlMs)
		if resp.Lease.TtlMs%1000 == 0 {
			granted = fmt.Sprintf("%ds", resp.Lease.TtlMs/1000) // as in etcdctl
		}
		return showChanged(resp, resp.Lease, "granted with TTL(%s), token %d\n",
			granted, resp.Lease.Token), nil
	})
}

// grantOnce grants one lease, even if clientv3 retries the request. In clientv3's own Grant, the
// server chooses the ID, so a retry after a lost response would grant a second lease. Here, the ID
// is random and chosen by the client. If it already exists, the first attempt succeeded.
func grantOnce(
	ctx context.Context, c etcdserverpb.LeaseClient, ttl int64,
) (app.Answer, error) {
	id := 1 + rand.Int64N(math.MaxInt64)
	r, err := c.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{TTL: ttl, ID: id})
	if errors.Is(clientv3.ContextError(ctx, err), rpctypes.ErrLeaseExist) {
		var now *etcdserverpb.LeaseTimeToLiveResponse
		now, err = c.LeaseTimeToLive(ctx, &etcdserverpb.LeaseTimeToLiveRequest{ID: id})
		r = &etcdserverpb.LeaseGrantResponse{Header: now.GetHeader(), ID: id, TTL: now.GetGrantedTTL()}
	}
	if err != nil {
		return app.Answer{}, fmt.Errorf("grant the lease: %w", clientv3.ContextError(ctx, err))
	}
	return showGrant(&clientv3.LeaseGrantResponse{
		ResponseHeader: r.GetHeader(), ID: clientv3.LeaseID(r.ID), TTL: r.TTL, Error: r.Error,
	}), nil
}

func (a commands) leaseRevoke() app.Command {
	return app.Command{
		Use: "revoke <leaseID|name> ...", Short: "Revoke leases and delete the keys attached to them",
		Example: "lease revoke 694d77aa9e38260f\nlease revoke worker-7 worker-8",
		Min:     1, Max: -1, Words: []app.WordList{app.LeaseWords},
		Run: func(_ *cobra.Command, args, _ []string) error {
			return a.eachLease(args, a.CommandContext, func(
				ctx context.Context, c *clientv3.Client, id clientv3.LeaseID,
			) (app.Answer, error) {
				resp, err := c.Revoke(ctx, id)
				if err != nil {
					return app.Answer{}, fmt.Errorf("revoke the lease: %w", err)
				}
				return showRevoke(id, resp), nil
			})
		},
	}
}

func (a commands) leaseTimeToLive() app.Command {
	var keys bool
	return app.Command{
		Use: "timetolive <leaseID|name> ...", Short: "Print the TTL and the remaining time of leases",
		Example: "lease timetolive worker-7 --keys",
		Min:     1, Max: -1, Words: []app.WordList{app.LeaseWords},
		Flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&keys, "keys", false, "print the keys attached to the lease as well")
		},
		Run: func(_ *cobra.Command, args, _ []string) error {
			var opts []clientv3.LeaseOption
			if keys {
				opts = append(opts, clientv3.WithAttachedKeys())
			}
			return a.eachLease(args, a.PatientContext, func(
				ctx context.Context, c *clientv3.Client, id clientv3.LeaseID,
			) (app.Answer, error) {
				resp, err := c.TimeToLive(ctx, id, opts...)
				if err != nil {
					return app.Answer{}, app.WithCode(app.ExitConnection, err)
				}
				return showTimeToLive(resp, keys), nil
			})
		},
	}
}

// listFlags are the flags of lease list that do not exist in etcdctl.
type listFlags struct {
	long          bool
	prefix, owner string
	labels        []string
}

func (f *listFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.long, "long", false, "print name, owner, TTL, remaining time and keys of each lease")
	fs.StringVar(&f.prefix, "prefix", "",
		"only leases whose names begin with this prefix, sorted by name (implies --long)")
	fs.StringVar(&f.owner, "owner", "", "only leases with this owner (implies --long)")
	labelFlag(fs, &f.labels, "only leases with this label (implies --long)")
}

func (a commands) leaseList() app.Command {
	var f listFlags
	var labels map[string]string
	return app.Command{
		Use: "list", Short: "List live leases", Max: -1, Patient: true,
		Example: "lease list\nlease list --long --prefix worker- -w table",
		Flags:   f.register,
		Check: func([]string) (err error) {
			labels, err = parseLabels(f.labels)
			return err
		},
		Call: func(ctx context.Context, c *clientv3.Client, _ []string) (app.Answer, error) {
			if f.long || f.prefix != "" || f.owner != "" || len(labels) > 0 {
				return a.listLong(ctx, c, &pb.ListRequest{
					NamePrefix: f.prefix, Owner: f.owner, Labels: labels,
				})
			}
			resp, err := c.Leases(ctx)
			if err != nil {
				return app.Answer{}, app.WithCode(app.ExitConnection, err)
			}
			return showLeases(resp), nil
		},
	}
}

// listLong lists all pages as one answer. There can be many pages, but each call is short.
func (a commands) listLong(
	ctx context.Context, c *clientv3.Client, r *pb.ListRequest,
) (app.Answer, error) {
	all := &pb.ListResponse{}
	for {
		short, cancel := context.WithTimeout(ctx, a.Flags.CommandTimeout)
		page, err := app.NativeLeases(c).List(short, r)
		cancel()
		if err != nil {
			return app.Answer{}, app.NativeError(err)
		}
		all.Header = page.Header
		all.Leases = append(all.Leases, page.Leases...)
		if r.PageToken = page.NextPageToken; r.PageToken == "" {
			return showLeaseList(all), nil
		}
	}
}

var leaseDescribe = app.Command{
	Use: "describe <leaseID|name>", Short: "Print everything about one lease, including its keys",
	Example: "lease describe worker-7\nlease describe 694d77aa9e38260f -w json",
	Min:     1, Max: 1, Words: []app.WordList{app.LeaseWords}, Check: checkLeaseArg,
	RPC: func(ctx context.Context, c grpc.ClientConnInterface, args []string) (app.Answer, error) {
		r, err := describeArg(args[0])
		if err != nil {
			return app.Answer{}, err
		}
		r.Keys = true
		resp, err := pb.NewLeaseServiceClient(c).Describe(ctx, r)
		if err != nil {
			return app.Answer{}, err
		}
		return showDescribed(resp), nil
	},
}
