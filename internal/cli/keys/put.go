package keys

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/cli/app"
)

type putFlags struct {
	lease       string
	prevKV      bool
	ignoreValue bool
	ignoreLease bool
}

func (f *putFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.lease, "lease", "0",
		"ID (in hexadecimal) or name of the lease to attach the key to")
	fs.BoolVar(&f.prevKV, "prev-kv", false, "print the previous key and value")
	fs.BoolVar(&f.ignoreValue, "ignore-value", false, "keep the current value of the key")
	fs.BoolVar(&f.ignoreLease, "ignore-lease", false, "keep the current lease of the key")
}

// op returns the operation for args. It reads a missing value from stdin. etcd's API has no lease
// names, so the name of a lease is returned separately.
func (f *putFlags) op(
	args []string, stdin io.Reader,
) (_ clientv3.Op, name string, err error) {
	const usage = "put command needs 1 argument and input from stdin or 2 arguments"
	var none clientv3.Op
	if len(args) == 0 {
		return none, "", app.BadArgs(usage)
	}
	if f.ignoreValue && len(args) > 1 {
		return none, "", app.BadArgs("put command needs only 1 argument when 'ignore-value' is set")
	}
	value := ""
	if !f.ignoreValue {
		if value, err = app.ArgOrStdin(args, 1, stdin); err != nil {
			return none, "", app.BadArgs(usage)
		}
	}
	ref, err := app.ParseLease(f.lease, "bad lease ID")
	if err != nil {
		return none, "", err
	}
	var opts []clientv3.OpOption
	if ref.Id != 0 {
		opts = append(opts, clientv3.WithLease(clientv3.LeaseID(ref.Id)))
	}
	if f.prevKV {
		opts = append(opts, clientv3.WithPrevKV())
	}
	if f.ignoreValue {
		opts = append(opts, clientv3.WithIgnoreValue())
	}
	if f.ignoreLease {
		opts = append(opts, clientv3.WithIgnoreLease())
	}
	return clientv3.OpPut(args[0], value, opts...), ref.Name, nil
}

// etcdPut converts a response to etcd's API.
func etcdPut(r *pb.PutResponse) *etcdserverpb.PutResponse {
	h := r.GetHeader()
	out := &etcdserverpb.PutResponse{Header: &etcdserverpb.ResponseHeader{
		ClusterId: h.GetClusterId(), MemberId: h.GetMemberId(), Revision: h.GetRevision(),
		RaftTerm: h.GetTerm(),
	}}
	if kv := r.GetPrevKv(); kv != nil {
		out.PrevKv = app.EtcdKV(kv)
	}
	return out
}

// request returns the leasehold.v1 request for flags that etcd's API does not support.
func (f *putFlags) request(op clientv3.Op) *pb.PutRequest {
	return &pb.PutRequest{
		Key: op.KeyBytes(), Value: op.ValueBytes(), PrevKv: f.prevKV, IgnoreValue: f.ignoreValue,
		IgnoreLease: f.ignoreLease,
	}
}

// ttlRequest returns the request for a put with a TTL.
func (f *putFlags) ttlRequest(op clientv3.Op, ttl time.Duration) (*pb.PutRequest, error) {
	switch {
	case ttl < time.Millisecond:
		return nil, app.BadArgs("bad --ttl %v, expecting 1ms or more", ttl)
	case f.lease != "0" || f.ignoreLease:
		return nil, app.BadArgs("--ttl cannot be used with --lease or --ignore-lease")
	}
	r := f.request(op)
	r.TtlMs = ttl.Milliseconds()
	return r, nil
}

func (a commands) putCommand() *cobra.Command {
	var f putFlags
	var ttl time.Duration
	cmd := a.Make(app.Command{
		Use: "put <key> <value> (<value> can also be given from stdin)", Short: "Put a key",
		Long: `Put a key.

A value that begins with '-' would be parsed as a flag. Put '--' before it:

$ put <key> -- <value>
$ put -- <key> <value>

Without <value> and --ignore-value, the value is read from standard input:

$ cat file | put <key>

With --ttl the key gets its own lease, which ends when the key is deleted.

--lease takes an ID, as in etcdctl, or the name that the lease was granted with; the key is attached
to the lease that has the name when the put is applied. Put "name:" before a name that could be an
ID, such as "cafe".`,
		Example: "put config/a 1\nput --lease worker-7 config/a 1\nput --ttl 10s seen/host-a now",
		Max:     -1, Words: []app.WordList{app.KeyWords, app.NoWords},
		Flags: func(fs *pflag.FlagSet) {
			f.register(fs)
			fs.DurationVar(&ttl, "ttl", 0,
				"delete the key after this time, unless it is put again first; needs no lease")
		},
		Run: func(cmd *cobra.Command, args, _ []string) error {
			op, name, err := f.op(args, a.Stdin)
			var r *pb.PutRequest // set if etcd's API does not support the flags
			if err == nil && cmd.Flags().Changed("ttl") {
				r, err = f.ttlRequest(op, ttl)
			} else if name != "" {
				r = f.request(op)
				r.LeaseRef = &pb.LeaseRef{Name: name}
			}
			if err != nil {
				return err
			}
			return a.Ask(a.CommandContext, func(
				ctx context.Context, c *clientv3.Client,
			) (app.Answer, error) {
				if r != nil {
					resp, err := pb.NewStoreServiceClient(c.ActiveConnection()).Put(ctx, r)
					return showPut((*clientv3.PutResponse)(etcdPut(resp))), app.NativeError(err)
				}
				resp, err := c.Do(ctx, op)
				return showPut(resp.Put()), err
			})
		},
	})
	app.CompleteBy(cmd, "lease", a.CompleteLive([]app.WordList{app.LeaseWords}))
	return cmd
}
