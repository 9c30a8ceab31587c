package keys

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"leasehold.dev/internal/cli/app"
)

// interruptTime is how long a range delete waits to give the user a chance to interrupt it.
const interruptTime = 2 * time.Second

type delFlags struct {
	prefix, fromKey bool
	prevKV          bool
	explicitRange   bool
}

func (f *delFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.prefix, "prefix", false, "all keys that begin with <key>")
	fs.BoolVar(&f.prevKV, "prev-kv", false, "print the deleted keys and values")
	fs.BoolVar(&f.fromKey, "from-key", false, "all keys from <key> onward, in byte order")
	fs.BoolVar(&f.explicitRange, "range", false, "delete a range without the warning and delay")
}

// op returns the operation for args. The result risky means that it deletes a range without
// --range, possibly because of a typo.
func (f *delFlags) op(args []string) (op clientv3.Op, risky bool, err error) {
	if len(args) == 0 || len(args) > 2 {
		return op, false, app.BadArgs("del command needs one argument as key " +
			"and an optional argument as range_end")
	}
	key, opts, err := rangeOf(args, f.prefix, f.fromKey)
	if err != nil {
		return op, false, err
	}
	if f.prevKV {
		opts = append(opts, clientv3.WithPrevKV())
	}
	return clientv3.OpDelete(key, opts...), len(args) == 2 && !f.explicitRange, nil
}

// rangeOf returns the key range for the arguments of get or del.
func rangeOf(args []string, prefix, fromKey bool) (string, []clientv3.OpOption, error) {
	if prefix && fromKey {
		return "", nil, app.BadArgs("`--prefix` and `--from-key` cannot be set " +
			"at the same time, choose one")
	}
	key := args[0]
	if len(args) > 1 {
		if prefix || fromKey {
			return "", nil, app.BadArgs("too many arguments, only accept one argument " +
				"when `--prefix` or `--from-key` is set")
		}
		return key, []clientv3.OpOption{clientv3.WithRange(args[1])}, nil
	}
	switch {
	case (prefix || fromKey) && key == "":
		// All keys. The API has no empty key, so the range begins at the first possible key.
		return "\x00", []clientv3.OpOption{clientv3.WithFromKey()}, nil
	case prefix:
		return key, []clientv3.OpOption{clientv3.WithPrefix()}, nil
	case fromKey:
		return key, []clientv3.OpOption{clientv3.WithFromKey()}, nil
	}
	return key, nil, nil
}

// warnRangeDelete prints which keys will be deleted, and waits.
func (a commands) warnRangeDelete(args []string) {
	a.Warnf("Warning: Keys between %q and %q will be deleted. Please interrupt the command "+
		"within next 2 seconds to cancel. You can provide `--range` flag to avoid the delay.\n",
		args[0], args[1])
	time.Sleep(interruptTime)
}

func (a commands) delCommand() *cobra.Command {
	var f delFlags
	return a.Make(app.Command{
		Use: "del <key> [range_end]", Short: "Delete a key or a range of keys [key, range_end)",
		Example: "del config/a\ndel config/ --prefix --prev-kv",
		Max:     -1, Words: []app.WordList{app.KeyWords, app.KeyWords}, Flags: f.register,
		Run: func(_ *cobra.Command, args, _ []string) error {
			op, risky, err := f.op(args)
			if err != nil {
				return err
			}
			if risky {
				a.warnRangeDelete(args)
			}
			return a.Ask(a.CommandContext, func(
				ctx context.Context, c *clientv3.Client,
			) (app.Answer, error) {
				resp, err := c.Do(ctx, op)
				return showDel(resp.Del()), err
			})
		},
	})
}
