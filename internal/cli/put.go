package cli

import (
	"context"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
)

type putFlags struct {
	lease       string
	prevKV      bool
	ignoreValue bool
	ignoreLease bool
}

func (f *putFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.lease, "lease", "0", "lease ID (in hexadecimal) to attach to the key")
	fs.BoolVar(&f.prevKV, "prev-kv", false,
		"return the previous key-value pair before modification")
	fs.BoolVar(&f.ignoreValue, "ignore-value", false, "updates the key using its current value")
	fs.BoolVar(&f.ignoreLease, "ignore-lease", false, "updates the key using its current lease")
}

// op makes the operation that args ask for; a missing value is read from stdin.
func (f *putFlags) op(args []string, stdin io.Reader) (clientv3.Op, error) {
	const usage = "put command needs 1 argument and input from stdin or 2 arguments"
	var none clientv3.Op
	if len(args) == 0 {
		return none, badArgs(usage)
	}
	if f.ignoreValue && len(args) > 1 {
		return none, badArgs("put command needs only 1 argument when 'ignore-value' is set")
	}
	value := ""
	if !f.ignoreValue {
		var err error
		if value, err = argOrStdin(args, 1, stdin); err != nil {
			return none, badArgs(usage)
		}
	}
	id, err := strconv.ParseInt(f.lease, 16, 64)
	if err != nil {
		return none, badArgs("bad lease ID (%w), expecting ID in Hex", err)
	}
	var opts []clientv3.OpOption
	if id != 0 {
		opts = append(opts, clientv3.WithLease(clientv3.LeaseID(id)))
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
	return clientv3.OpPut(args[0], value, opts...), nil
}

func (a *app) putCommand() *cobra.Command {
	var f putFlags
	cmd := &cobra.Command{
		Use:   "put [options] <key> <value> (<value> can also be given from stdin)",
		Short: "Puts the given key into the store",
		Long: `Puts the given key into the store.

A value that begins with '-' would be taken for a flag; put '--' before it:

$ put <key> -- <value>
$ put -- <key> <value>

Without <value> and --ignore-value, the value is read from standard input:

$ cat file | put <key>`,
		RunE: func(_ *cobra.Command, args []string) error {
			op, err := f.op(args, a.Stdin)
			if err != nil {
				return err
			}
			return a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
				resp, err := c.Do(ctx, op)
				if err != nil {
					return answer{}, err
				}
				return showPut(resp.Put()), nil
			})
		},
	}
	f.register(cmd.Flags())
	return cmd
}
