package cli

import (
	"context"
	"encoding/base64"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// describeCall is a command about one lease, which asks what the lease is first.
type describeCall func(
	ctx context.Context, c pb.LeaseServiceClient, l *pb.Lease, args []string,
) (answer, error)

// onLease makes a command that names a lease, and then has the arguments that use lists. The lease
// has the token that --token says, or the one that it has when the command begins: so the command
// does nothing to a later lease of the same ID or name.
func (a *app) onLease(use, short string, arguments int, call describeCall) *cobra.Command {
	var n leaseName
	var token uint64
	cmd := &cobra.Command{
		Use: use, Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			named := min(1, len(args))
			if n.name != "" {
				named = 0
			}
			r, err := n.request(cmd, args[:named])
			if err != nil {
				return err
			}
			args = args[named:]
			if arguments >= 0 && len(args) != arguments || len(args) == 0 {
				return badArgs("usage: %s", cmd.UseLine())
			}
			return a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				l, err := nativeLeases(c).Describe(ctx, r)
				if err != nil {
					return answer{}, nativeError(err)
				}
				if token != 0 {
					l.Lease.Token = token
				}
				return call(ctx, nativeLeases(c), l.Lease, args)
			})
		},
	}
	n.add(cmd)
	cmd.Flags().Uint64Var(&token, "token", 0,
		"Only if the lease still has this token (default: whichever it has)")
	return cmd
}

func refOf(l *pb.Lease) *pb.LeaseRef { return &pb.LeaseRef{Id: l.Id, Token: l.Token} }

func (a *app) leaseTTL() *cobra.Command {
	const short = "Change the TTL of a lease, which then restarts; the lease ends no sooner"
	cmd := a.onLease("ttl [<leaseID|name>] <ttl>", short, 1,
		func(ctx context.Context, c pb.LeaseServiceClient, l *pb.Lease, args []string) (answer, error) {
			ttl, err := parseTTL(args[0])
			if err != nil {
				return answer{}, err
			}
			resp, err := c.ChangeTTL(ctx, &pb.ChangeTTLRequest{Lease: refOf(l), TtlMs: ttl})
			if err != nil {
				return answer{}, nativeError(err)
			}
			return showChanged(resp, resp.Lease, "has TTL(%s) now\n", millis(resp.Lease.TtlMs)), nil
		})
	cmd.Long = `Give a lease another TTL, which runs anew: seconds, or a duration such as 500ms.
While the same member leads, the lease ends no earlier than it would have without this; a
later leader knows only the new TTL. So the holder of the lease must know of a shorter TTL
before: it counts on the old one.`
	return cmd
}

func (a *app) leaseAttach() *cobra.Command {
	return a.onKeys("attach", "Attach keys to a lease; their values stay as they are",
		func(ctx context.Context, c pb.LeaseServiceClient, l *pb.Lease, keys [][]byte) (
			proto.Message, error,
		) {
			return c.Attach(ctx, &pb.AttachRequest{Lease: refOf(l), Keys: keys})
		})
}

func (a *app) leaseDetach() *cobra.Command {
	return a.onKeys("detach", "Detach keys from a lease; the keys stay when the lease ends",
		func(ctx context.Context, c pb.LeaseServiceClient, l *pb.Lease, keys [][]byte) (
			proto.Message, error,
		) {
			return c.Detach(ctx, &pb.DetachRequest{Lease: refOf(l), Keys: keys})
		})
}

// onKeys makes a command that does one thing, such as attach, with keys and a lease.
func (a *app) onKeys(verb, short string, call func(
	ctx context.Context, c pb.LeaseServiceClient, l *pb.Lease, keys [][]byte,
) (proto.Message, error),
) *cobra.Command {
	return a.onLease(verb+" [<leaseID|name>] <key> ...", short, -1,
		func(ctx context.Context, c pb.LeaseServiceClient, l *pb.Lease, args []string) (answer, error) {
			resp, err := call(ctx, c, l, keysOf(args))
			if err != nil {
				return answer{}, nativeError(err)
			}
			return showChanged(resp, l, verb+"ed keys(%q)\n", args), nil
		})
}

func keysOf(args []string) [][]byte {
	out := make([][]byte, len(args))
	for i, key := range args {
		out[i] = []byte(key)
	}
	return out
}

func (a *app) leaseResume() *cobra.Command {
	var n leaseName
	var secret string
	cmd := &cobra.Command{
		Use:   "resume [<leaseID|name>] --secret <secret>",
		Short: "Take over a resumable lease by its secret",
		Long: `Takes over a resumable lease by the secret that its grant printed. The TTL runs anew, and
the lease has a new fencing token; the process that held it is refused from then on.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := n.request(cmd, args)
			if err != nil {
				return err
			}
			r := &pb.ResumeRequest{Id: named.Id, Name: named.Name}
			if r.Secret, err = base64.StdEncoding.DecodeString(secret); err != nil || secret == "" {
				return badArgs("%s needs --secret, as lease grant --resumable printed it",
					cmd.CommandPath())
			}
			return a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := nativeLeases(c).Resume(ctx, r)
				if err != nil {
					return answer{}, nativeError(err)
				}
				return showChanged(resp, resp.Lease, "resumed, token %d\n", resp.Lease.Token), nil
			})
		},
	}
	n.add(cmd)
	cmd.Flags().StringVar(&secret, "secret", "", "As the grant or the hand-over printed it")
	return cmd
}

// leaseCheckToken exits with a code of its own if the token is not that of a live lease, so that
// a script can tell.
func (a *app) leaseCheckToken() *cobra.Command {
	var n leaseName
	cmd := &cobra.Command{
		Use:   "check-token [<leaseID|name>] <token>",
		Short: "Check whether a fencing token is that of a live lease",
		Long: `Check whether a fencing token is that of a live lease, as of a confirm round made after the
question. The exit code is 0 if it is, and 1 if it is not. The token of a lock (LEASEHOLD_TOKEN of
"leasehold run") belongs to the lock and not to a lease.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return badArgs("usage: %s", cmd.UseLine())
			}
			named, err := n.request(cmd, args[:len(args)-1])
			if err != nil {
				return err
			}
			r := &pb.CheckTokenRequest{Id: named.Id, Name: named.Name}
			token := args[len(args)-1]
			if r.Token, err = strconv.ParseUint(token, 10, 64); err != nil || r.Token == 0 {
				return badArgs("%q is no token: expecting a number from 1 on", token)
			}
			valid := false
			err = a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := nativeLeases(c).CheckToken(ctx, r)
				if err != nil {
					return answer{}, nativeError(err)
				}
				valid = resp.Valid
				return showChecked(r, resp), nil
			})
			if err == nil && !valid {
				err = &exitError{code: exitFailure}
			}
			return err
		},
	}
	n.add(cmd)
	return cmd
}

// parseTTL reads a TTL: seconds, as for etcdctl, or a duration with a unit. It is in milliseconds,
// rounded up.
func parseTTL(s string) (int64, error) {
	if seconds, err := strconv.ParseInt(s, 10, 64); err == nil {
		if seconds > maxTTLSeconds {
			return 0, badArgs("bad TTL %q, at most %d seconds", s, int64(maxTTLSeconds))
		}
		return seconds * 1000, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, badArgs("bad TTL %q, expecting seconds or a duration above 0 such as 500ms", s)
	}
	return millisUp(d), nil
}

// millisUp is a duration in milliseconds, rounded up.
func millisUp(d time.Duration) int64 {
	return int64(d/time.Millisecond) + min(1, int64(d%time.Millisecond))
}

// maxTTLSeconds is the longest TTL that members take.
const maxTTLSeconds = 9_000_000_000
