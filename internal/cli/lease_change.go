package cli

import (
	"context"
	"encoding/base64"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// changeLease completes a command that changes one lease, the first argument. The lease has the
// token that --token names, or the one that it has when the command begins: the command does not
// change a later lease of the same ID or name.
func changeLease(d command, change func(
	ctx context.Context, c pb.LeaseServiceClient, l *pb.Lease, args []string,
) (answer, error),
) command {
	var token uint64
	more, check := d.flags, d.check
	d.flags = func(fs *pflag.FlagSet) {
		fs.Uint64Var(&token, "token", 0,
			"only if the lease still has this token (default: any token)")
		if more != nil {
			more(fs)
		}
	}
	d.check = func(args []string) error {
		if err := checkLeaseArg(args); err != nil || check == nil {
			return err
		}
		return check(args)
	}
	d.rpc = func(ctx context.Context, conn grpc.ClientConnInterface, args []string) (answer, error) {
		c := pb.NewLeaseServiceClient(conn)
		r, err := describeArg(args[0])
		if err != nil {
			return answer{}, err
		}
		l, err := c.Describe(ctx, r)
		if err != nil {
			return answer{}, err
		}
		if token != 0 {
			l.Lease.Token = token
		}
		return change(ctx, c, l.Lease, args[1:])
	}
	return d
}

func refOf(l *pb.Lease) *pb.LeaseRef { return &pb.LeaseRef{Id: l.Id, Token: l.Token} }

func leaseTTL() command {
	var ttl int64
	return changeLease(command{
		use: "ttl <leaseID|name> <ttl>", short: "Change the TTL of a lease and renew it",
		long: `Change the TTL of a lease and renew it: the TTL is in seconds, or a duration such as
500ms. While the same member leads, the lease ends no earlier than it would have without this; a
later leader knows only the new TTL. So tell the holder before you shorten the TTL: it relies on the
old one.`,
		example: "lease ttl worker-7 2m", min: 2, max: 2, words: []wordList{leaseWords, noWords},
		check: func(args []string) (err error) {
			ttl, err = parseTTL(args[1])
			return err
		},
	}, func(ctx context.Context, c pb.LeaseServiceClient, l *pb.Lease, _ []string) (answer, error) {
		resp, err := c.ChangeTTL(ctx, &pb.ChangeTTLRequest{Lease: refOf(l), TtlMs: ttl})
		if err != nil {
			return answer{}, err
		}
		return showChanged(resp, resp.Lease, "has TTL(%s) now\n", millis(resp.Lease.TtlMs)), nil
	})
}

func leaseAttach() command {
	return changeKeys("attach", "Attach keys to a lease and keep their values",
		func(ctx context.Context, c pb.LeaseServiceClient, l *pb.LeaseRef, keys [][]byte) (
			proto.Message, error,
		) {
			return c.Attach(ctx, &pb.AttachRequest{Lease: l, Keys: keys})
		})
}

func leaseDetach() command {
	return changeKeys("detach", "Detach keys from a lease, so that they outlive it",
		func(ctx context.Context, c pb.LeaseServiceClient, l *pb.LeaseRef, keys [][]byte) (
			proto.Message, error,
		) {
			return c.Detach(ctx, &pb.DetachRequest{Lease: l, Keys: keys})
		})
}

// changeKeys is a command that attaches or detaches keys.
func changeKeys(verb, short string, call func(
	ctx context.Context, c pb.LeaseServiceClient, l *pb.LeaseRef, keys [][]byte,
) (proto.Message, error),
) command {
	return changeLease(command{
		use: verb + " <leaseID|name> <key> ...", short: short,
		example: "lease " + verb + " worker-7 config/a config/b",
		min:     2, max: -1, words: []wordList{leaseWords, keyWords},
	}, func(ctx context.Context, c pb.LeaseServiceClient, l *pb.Lease, args []string) (answer, error) {
		keys := make([][]byte, len(args))
		for i, key := range args {
			keys[i] = []byte(key)
		}
		resp, err := call(ctx, c, refOf(l), keys)
		if err != nil {
			return answer{}, err
		}
		return showChanged(resp, l, verb+"ed keys(%q)\n", args), nil
	})
}

func leaseHandOver() command {
	r := &pb.HandOverRequest{}
	var set *pflag.FlagSet
	return changeLease(command{
		use: "handover <leaseID|name> --owner <owner>", short: "Hand a lease over to another owner",
		long: `Hand a lease, with its name and its keys, to another owner. It is renewed, and has a
new fencing token; the old one is refused from then on. Stop the holder before, unless everything
that it writes to refuses old tokens.`,
		example: "lease handover worker-7 --owner host-b",
		min:     1, max: 1, words: []wordList{leaseWords, noWords},
		flags: func(fs *pflag.FlagSet) {
			set = fs
			fs.StringVar(&r.Owner, "owner", "", "new owner, '' for none")
			fs.BoolVar(&r.Resumable, "resumable", false,
				"print a secret by which another process can resume the lease")
		},
		check: func([]string) error {
			if !set.Changed("owner") {
				return badArgs("lease handover needs --owner")
			}
			return nil
		},
	}, func(ctx context.Context, c pb.LeaseServiceClient, l *pb.Lease, _ []string) (answer, error) {
		r.Lease = refOf(l)
		resp, err := c.HandOver(ctx, r)
		if err != nil {
			return answer{}, err
		}
		return showChanged(resp, resp.Lease, "handed over to %q, token %d\n", resp.Lease.Owner,
			resp.Lease.Token), nil
	})
}

func leaseResume() command {
	var text string
	var secret []byte
	return command{
		use:   "resume <leaseID|name> --secret <secret>",
		short: "Take over a resumable lease by its secret",
		long: `Take over a resumable lease by the secret that its grant printed. It is renewed, and
has a new fencing token; the process that held it is refused from then on.`,
		example: "lease resume worker-7 --secret 5b1c9d",
		min:     1, max: 1, words: []wordList{leaseWords, noWords},
		flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&text, "secret", "", "secret that lease grant or lease handover printed")
		},
		check: func(args []string) (err error) {
			if secret, err = base64.StdEncoding.DecodeString(text); err != nil || text == "" {
				return badArgs("lease resume needs --secret, as lease grant --resumable printed it")
			}
			return checkLeaseArg(args)
		},
		rpc: func(ctx context.Context, c grpc.ClientConnInterface, args []string) (answer, error) {
			l, err := parseLeaseArg(args[0])
			if err != nil {
				return answer{}, err
			}
			resp, err := pb.NewLeaseServiceClient(c).Resume(ctx,
				&pb.ResumeRequest{Id: l.Id, Name: l.Name, Secret: secret})
			if err != nil {
				return answer{}, err
			}
			return showChanged(resp, resp.Lease, "resumed, token %d\n", resp.Lease.Token), nil
		},
	}
}

// leaseCheckToken exits with a code of its own if the token is not that of a live lease, so that
// a script can tell.
func leaseCheckToken() command {
	var token uint64
	return command{
		use: "check-token <leaseID|name> <token>", short: "Check the fencing token of a lease",
		long: `Check whether a fencing token is that of a live lease, as of a confirm round made
after the request. The exit code is 0 if it is, and 1 if it is not. The token of a lock
(LEASEHOLD_TOKEN of leasehold run) belongs to the lock and not to a lease.`,
		example: "lease check-token worker-7 42 && echo still the holder",
		min:     2, max: 2, words: []wordList{leaseWords, noWords},
		check: func(args []string) (err error) {
			if token, err = strconv.ParseUint(args[1], 10, 64); err != nil || token == 0 {
				return badArgs("bad token %q, expecting a number above 0", args[1])
			}
			return checkLeaseArg(args)
		},
		rpc: func(ctx context.Context, c grpc.ClientConnInterface, args []string) (answer, error) {
			l, err := parseLeaseArg(args[0])
			if err != nil {
				return answer{}, err
			}
			r := &pb.CheckTokenRequest{Id: l.Id, Name: l.Name, Token: token}
			resp, err := pb.NewLeaseServiceClient(c).CheckToken(ctx, r)
			if err != nil {
				return answer{}, err
			}
			return showChecked(r, resp), nil
		},
	}
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
