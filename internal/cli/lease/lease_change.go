package lease

import (
	"context"
	"encoding/base64"
	"strconv"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/cli/app"
)

// changeLease completes a command that changes one lease, which is the first argument. It changes
// only the lease with the token given by --token or, by default, the lease's current token. It
// never changes a later lease with the same ID or name.
func changeLease(d app.Command, change func(
	ctx context.Context, c pb.LeaseServiceClient, l *pb.Lease, args []string,
) (app.Answer, error),
) app.Command {
	var token uint64
	more, check := d.Flags, d.Check
	d.Flags = func(fs *pflag.FlagSet) {
		fs.Uint64Var(&token, "token", 0,
			"require the lease to have this token (default: any)")
		if more != nil {
			more(fs)
		}
	}
	d.Check = func(args []string) error {
		if err := checkLeaseArg(args); err != nil || check == nil {
			return err
		}
		return check(args)
	}
	d.RPC = func(
		ctx context.Context, conn grpc.ClientConnInterface, args []string,
	) (app.Answer, error) {
		c := pb.NewLeaseServiceClient(conn)
		r, err := describeArg(args[0])
		if err != nil {
			return app.Answer{}, err
		}
		l, err := c.Describe(ctx, r)
		if err != nil {
			return app.Answer{}, err
		}
		if token != 0 {
			l.Lease.Token = token
		}
		return change(ctx, c, l.Lease, args[1:])
	}
	return d
}

func refOf(l *pb.Lease) *pb.LeaseRef { return &pb.LeaseRef{Id: l.Id, Token: l.Token} }

func leaseTTL() app.Command {
	var ttl int64
	return changeLease(app.Command{
		Use: "ttl <leaseID|name> <ttl>", Short: "Change the TTL of a lease and renew it",
		Long: `Change the TTL of a lease and renew it. The TTL is in seconds, or a duration such as
500ms. While the same member leads, the lease ends no earlier than it would have without the change;
a later leader uses only the new TTL. Inform the holder before you shorten the TTL, because the
holder relies on the old one.`,
		Example: "lease ttl worker-7 2m", Min: 2, Max: 2,
		Words: []app.WordList{app.LeaseWords, app.NoWords},
		Check: func(args []string) (err error) {
			ttl, err = app.ParseTTL(args[1])
			return err
		},
	}, func(
		ctx context.Context, c pb.LeaseServiceClient, l *pb.Lease, _ []string,
	) (app.Answer, error) {
		resp, err := c.ChangeTTL(ctx, &pb.ChangeTTLRequest{Lease: refOf(l), TtlMs: ttl})
		if err != nil {
			return app.Answer{}, err
		}
		return showChanged(resp, resp.Lease, "has TTL(%s) now\n", app.Millis(resp.Lease.TtlMs)), nil
	})
}

func leaseAttach() app.Command {
	return changeKeys("attach", "Attach keys to a lease and keep their values",
		func(ctx context.Context, c pb.LeaseServiceClient, l *pb.LeaseRef, keys [][]byte) (
			proto.Message, error,
		) {
			return c.Attach(ctx, &pb.AttachRequest{Lease: l, Keys: keys})
		})
}

func leaseDetach() app.Command {
	return changeKeys("detach", "Detach keys from a lease, so that they outlive it",
		func(ctx context.Context, c pb.LeaseServiceClient, l *pb.LeaseRef, keys [][]byte) (
			proto.Message, error,
		) {
			return c.Detach(ctx, &pb.DetachRequest{Lease: l, Keys: keys})
		})
}

// changeKeys returns a command that attaches or detaches keys.
func changeKeys(verb, short string, call func(
	ctx context.Context, c pb.LeaseServiceClient, l *pb.LeaseRef, keys [][]byte,
) (proto.Message, error),
) app.Command {
	return changeLease(app.Command{
		Use: verb + " <leaseID|name> <key> ...", Short: short,
		Example: "lease " + verb + " worker-7 config/a config/b",
		Min:     2, Max: -1, Words: []app.WordList{app.LeaseWords, app.KeyWords},
	}, func(
		ctx context.Context, c pb.LeaseServiceClient, l *pb.Lease, args []string,
	) (app.Answer, error) {
		keys := make([][]byte, len(args))
		for i, key := range args {
			keys[i] = []byte(key)
		}
		resp, err := call(ctx, c, refOf(l), keys)
		if err != nil {
			return app.Answer{}, err
		}
		return showChanged(resp, l, verb+"ed keys(%q)\n", args), nil
	})
}

func leaseHandOver() app.Command {
	r := &pb.HandOverRequest{}
	var set *pflag.FlagSet
	return changeLease(app.Command{
		Use: "handover <leaseID|name> --owner <owner>", Short: "Hand a lease over to another owner",
		Long: `Hand a lease, with its name and its keys, to another owner. The lease is renewed and
gets a new fencing token; the old token is no longer accepted. Stop the holder first, unless every
resource that it writes to rejects old tokens.`,
		Example: "lease handover worker-7 --owner host-b",
		Min:     1, Max: 1, Words: []app.WordList{app.LeaseWords, app.NoWords},
		Flags: func(fs *pflag.FlagSet) {
			set = fs
			fs.StringVar(&r.Owner, "owner", "", "new owner, '' for none")
			fs.BoolVar(&r.Resumable, "resumable", false,
				"print a secret that lets another process resume the lease")
		},
		Check: func([]string) error {
			if !set.Changed("owner") {
				return app.BadArgs("lease handover needs --owner")
			}
			return nil
		},
	}, func(
		ctx context.Context, c pb.LeaseServiceClient, l *pb.Lease, _ []string,
	) (app.Answer, error) {
		r.Lease = refOf(l)
		resp, err := c.HandOver(ctx, r)
		if err != nil {
			return app.Answer{}, err
		}
		return showChanged(resp, resp.Lease, "handed over to %q, token %d\n", resp.Lease.Owner,
			resp.Lease.Token), nil
	})
}

func leaseResume() app.Command {
	var text string
	var secret []byte
	return app.Command{
		Use:   "resume <leaseID|name> --secret <secret>",
		Short: "Take over a resumable lease with its secret",
		Long: `Take over a resumable lease with the secret printed when it was granted. The lease is
renewed and gets a new fencing token; requests from the previous holder are rejected.`,
		Example: "lease resume worker-7 --secret 5b1c9d",
		Min:     1, Max: 1, Words: []app.WordList{app.LeaseWords, app.NoWords},
		Flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&text, "secret", "", "secret printed by lease grant or lease handover")
		},
		Check: func(args []string) (err error) {
			if secret, err = base64.StdEncoding.DecodeString(text); err != nil || text == "" {
				return app.BadArgs("lease resume needs --secret, " +
					"the secret printed by lease grant --resumable")
			}
			return checkLeaseArg(args)
		},
		RPC: func(ctx context.Context, c grpc.ClientConnInterface, args []string) (app.Answer, error) {
			l, err := app.ParseLeaseArg(args[0])
			if err != nil {
				return app.Answer{}, err
			}
			resp, err := pb.NewLeaseServiceClient(c).Resume(ctx,
				&pb.ResumeRequest{Id: l.Id, Name: l.Name, Secret: secret})
			if err != nil {
				return app.Answer{}, err
			}
			return showChanged(resp, resp.Lease, "resumed, token %d\n", resp.Lease.Token), nil
		},
	}
}

// leaseCheckToken returns the command that checks a token. If the token does not belong to a live
// lease, it exits with a special code for scripts.
func leaseCheckToken() app.Command {
	var token uint64
	return app.Command{
		Use: "check-token <leaseID|name> <token>", Short: "Check the fencing token of a lease",
		Long: `Check whether a fencing token belongs to a live lease, as of a confirm round made
after the request. The exit code is 0 if it does, and 1 if it does not. The token of a lock
(LEASEHOLD_TOKEN in leasehold run) belongs to the lock, not to a lease.`,
		Example: "lease check-token worker-7 42 && echo still the holder",
		Min:     2, Max: 2, Words: []app.WordList{app.LeaseWords, app.NoWords},
		Check: func(args []string) (err error) {
			if token, err = strconv.ParseUint(args[1], 10, 64); err != nil || token == 0 {
				return app.BadArgs("bad token %q, expecting a number above 0", args[1])
			}
			return checkLeaseArg(args)
		},
		RPC: func(ctx context.Context, c grpc.ClientConnInterface, args []string) (app.Answer, error) {
			l, err := app.ParseLeaseArg(args[0])
			if err != nil {
				return app.Answer{}, err
			}
			r := &pb.CheckTokenRequest{Id: l.Id, Name: l.Name, Token: token}
			resp, err := pb.NewLeaseServiceClient(c).CheckToken(ctx, r)
			if err != nil {
				return app.Answer{}, err
			}
			return showChecked(r, resp), nil
		},
	}
}
