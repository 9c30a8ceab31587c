package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
)

// nativeLeases returns the client of leasehold.v1 on c's connection.
func nativeLeases(c *clientv3.Client) pb.LeaseServiceClient {
	return pb.NewLeaseServiceClient(c.ActiveConnection())
}

// nativeError is a failure of leasehold.v1, in the words of its message alone.
func nativeError(err error) error {
	s := grpcstatus.Convert(err)
	text := s.Message()
	if why, found := dialErrorIn(text); found {
		text = "no member answers: " + why
	}
	if s.Code() == codes.Unimplemented {
		text = fmt.Sprintf("%v (%s)", client.ErrNotLeasehold, text)
	}
	return withCode(exitConnection, errors.New(text))
}

// grantFlags are those of lease grant by which it is more than etcdctl's.
type grantFlags struct {
	name, owner string
	labels      []string
	lockDelay   time.Duration
	keepKeys    bool
	resumable   bool
}

func (f *grantFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.name, "name", "", "A name, which no other lease has while this one lives")
	fs.StringVar(&f.owner, "owner", "", "Whose lease it is")
	fs.StringArrayVar(&f.labels, "label", nil, "A label, NAME=VALUE; may be repeated")
	fs.DurationVar(&f.lockDelay, "lock-delay", 0,
		"How long the name and the keys stay after the lease has expired")
	fs.BoolVar(&f.keepKeys, "keep-keys", false, "Leave the keys when the lease expires, detached")
	fs.BoolVar(&f.resumable, "resumable", false,
		"Print a secret, by which another process may resume the lease")
}

// set says whether any of them is.
func (f *grantFlags) set() bool {
	return f.name != "" || f.owner != "" || len(f.labels) > 0 ||
		f.lockDelay != 0 || f.keepKeys || f.resumable
}

// grantNamed grants a lease with what etcd's have not.
func (a *app) grantNamed(ttl int64, f *grantFlags) error {
	labels, err := parseLabels(f.labels)
	if err != nil {
		return err
	}
	if f.lockDelay < 0 {
		return badArgs("--lock-delay must not be below 0")
	}
	if arg := leaseArg(f.name); f.name != "" && arg != f.name {
		a.complain("Other commands read %s as an ID: refer to this lease as %s\n",
			readable(f.name), readable(arg))
	}
	r := &pb.GrantRequest{
		TtlMs: ttl, Name: f.name, Owner: f.owner, Labels: labels, Resumable: f.resumable,
		LockDelayMs: millisUp(f.lockDelay), RequestId: rand.Text(),
	}
	if f.keepKeys {
		r.AtExpiry = pb.AtExpiry_AT_EXPIRY_KEEP
	}
	return a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
		resp, err := nativeLeases(c).Grant(ctx, r)
		if err != nil {
			return answer{}, nativeError(err)
		}
		return showNativeGrant(resp), nil
	})
}

// listFlags are those of lease list by which it is more than etcdctl's.
type listFlags struct {
	long          bool
	prefix, owner string
	labels        []string
}

func (f *listFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&f.long, "long", false,
		"Tell of each lease its name, owner, TTL, remaining time and keys")
	fs.StringVar(&f.prefix, "prefix", "",
		"Only leases whose name begins with this, in the order of names (with --long)")
	fs.StringVar(&f.owner, "owner", "", "Only leases of this owner (with --long)")
	fs.StringArrayVar(&f.labels, "label", nil,
		"Only leases with this label, NAME=VALUE; may be repeated (with --long)")
}

// set says whether any of them is.
func (f *listFlags) set() bool {
	return f.long || f.prefix != "" || f.owner != "" || len(f.labels) > 0
}

// parseLabels reads labels as they are written on the command line.
func parseLabels(list []string) (map[string]string, error) {
	out := make(map[string]string)
	for _, l := range list {
		name, value, ok := strings.Cut(l, "=")
		if !ok {
			return nil, badArgs("bad label %q, expecting NAME=VALUE", l)
		}
		out[name] = value
	}
	return out, nil
}

// listLong lists all pages as one.
func (a *app) listLong(f *listFlags) error {
	labels, err := parseLabels(f.labels)
	if err != nil {
		return err
	}
	r := &pb.ListRequest{NamePrefix: f.prefix, Owner: f.owner, Labels: labels}
	return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
		all := &pb.ListResponse{}
		for {
			page, err := a.listPage(ctx, c, r)
			if err != nil {
				return answer{}, nativeError(err)
			}
			all.Header = page.Header
			all.Leases = append(all.Leases, page.Leases...)
			if r.PageToken = page.NextPageToken; r.PageToken == "" {
				return showLeaseList(all), nil
			}
		}
	})
}

// listPage lists one page. There may be many, but each is a short call.
func (a *app) listPage(
	ctx context.Context, c *clientv3.Client, r *pb.ListRequest,
) (*pb.ListResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, a.flags.commandTimeout)
	defer cancel()
	return nativeLeases(c).List(ctx, r)
}

// leaseName is how a command names a lease: by an argument or by --name.
type leaseName struct{ name string }

func (n *leaseName) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.name, "name", "", "The lease that has this name, instead of the argument")
}

func (n *leaseName) request(cmd *cobra.Command, args []string) (*pb.DescribeRequest, error) {
	switch {
	case n.name != "" && len(args) == 0:
		return &pb.DescribeRequest{Name: n.name}, nil
	case n.name == "" && len(args) == 1:
		r, err := parseLeaseArg(args[0])
		return &pb.DescribeRequest{Id: r.GetId(), Name: r.GetName()}, err
	}
	return nil, badArgs("%s needs a lease, by its ID or its name, as its argument, or --name",
		cmd.CommandPath())
}

func (a *app) leaseDescribe() *cobra.Command {
	var n leaseName
	cmd := &cobra.Command{
		Use:   "describe <leaseID|name> | --name <name>",
		Short: "Print everything about one lease, including its keys",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := n.request(cmd, args)
			if err != nil {
				return err
			}
			r.Keys = true
			return a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := nativeLeases(c).Describe(ctx, r)
				if err != nil {
					return answer{}, nativeError(err)
				}
				return showDescribed(resp), nil
			})
		},
	}
	n.add(cmd)
	return cmd
}

func (a *app) leaseHandOver() *cobra.Command {
	var n leaseName
	req := &pb.HandOverRequest{}
	var token uint64
	cmd := &cobra.Command{
		Use:   "handover [<leaseID|name>] --owner <owner>",
		Short: "Hand a lease over to another owner, with a new fencing token",
		Long: "Hand a lease, with its name and its keys, to another owner. Its TTL runs anew\n" +
			"and it has a new fencing token; the old one is refused from then on. The holder\n" +
			"must have stopped before, unless all that it writes to refuses old tokens.",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := n.request(cmd, args)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("owner") {
				return badArgs("%s needs --owner", cmd.CommandPath())
			}
			return a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				l, err := nativeLeases(c).Describe(ctx, r)
				if err != nil {
					return answer{}, nativeError(err)
				}
				req.Lease = &pb.LeaseRef{Id: l.Lease.Id, Token: l.Lease.Token}
				if token != 0 {
					req.Lease.Token = token
				}
				resp, err := nativeLeases(c).HandOver(ctx, req)
				if err != nil {
					return answer{}, nativeError(err)
				}
				return showHandedOver(resp), nil
			})
		},
	}
	n.add(cmd)
	cmd.Flags().StringVar(&req.Owner, "owner", "", "The new owner, '' for nobody")
	cmd.Flags().Uint64Var(&token, "token", 0,
		"Only if the lease still has this token (default: whichever it has)")
	cmd.Flags().BoolVar(&req.Resumable, "resumable", false,
		"Ask for a secret, by which a process may resume the lease")
	return cmd
}
