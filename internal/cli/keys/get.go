package keys

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"leasehold.dev/internal/cli/app"
)

type getFlags struct {
	consistency          string
	order, sortBy        string
	limit, rev           int64
	prefix, fromKey      bool
	keysOnly, countOnly  bool
	valueOnly            bool
	minCreate, maxCreate int64
	minMod, maxMod       int64
	stream               bool
}

func (f *getFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.consistency, "consistency", "l", "l for linearizable, s for serializable")
	fs.StringVar(&f.order, "order", "", "order of results: ASCEND or DESCEND (default: ASCEND)")
	fs.StringVar(&f.sortBy, "sort-by", "", "what to sort by: CREATE, KEY, MODIFY, VALUE or VERSION")
	fs.Int64Var(&f.limit, "limit", 0, "maximum number of results (0: all)")
	fs.BoolVar(&f.prefix, "prefix", false, "all keys that begin with <key>")
	fs.BoolVar(&f.fromKey, "from-key", false, "all keys from <key> onward, in byte order")
	fs.Int64Var(&f.rev, "rev", 0, "revision to read at (0: the latest)")
	fs.BoolVar(&f.keysOnly, "keys-only", false, "print only the keys")
	fs.BoolVar(&f.countOnly, "count-only", false, "print only the count")
	fs.BoolVar(&f.valueOnly, "print-value-only", false, "print only the values (--write-out simple)")
	fs.Int64Var(&f.minCreate, "min-create-rev", 0, "minimum create revision")
	fs.Int64Var(&f.maxCreate, "max-create-rev", 0, "maximum create revision")
	fs.Int64Var(&f.minMod, "min-mod-rev", 0, "minimum modification revision")
	fs.Int64Var(&f.maxMod, "max-mod-rev", 0, "maximum modification revision")
	fs.BoolVar(&f.stream, "stream", false, "read in chunks over a stream (RangeStream)")
}

var sortOrders = map[string]clientv3.SortOrder{
	"":        clientv3.SortNone,
	"ASCEND":  clientv3.SortAscend,
	"DESCEND": clientv3.SortDescend,
}

var sortTargets = map[string]clientv3.SortTarget{
	"":        clientv3.SortByKey,
	"CREATE":  clientv3.SortByCreateRevision,
	"KEY":     clientv3.SortByKey,
	"MODIFY":  clientv3.SortByModRevision,
	"VALUE":   clientv3.SortByValue,
	"VERSION": clientv3.SortByVersion,
}

// options returns the key and the options specified by args and flags.
func (f *getFlags) options(args []string) (string, []clientv3.OpOption, error) {
	if len(args) == 0 {
		return "", nil, app.BadArgs("get command needs one argument as key " +
			"and an optional argument as range_end")
	}
	key, opts, err := rangeOf(args, f.prefix, f.fromKey)
	if err != nil {
		return "", nil, err
	}
	if f.keysOnly && f.countOnly {
		return "", nil, app.BadArgs("`--keys-only` and `--count-only` cannot be set " +
			"at the same time, choose one")
	}
	serializable, err := app.IsSerializable(f.consistency)
	if err != nil {
		return "", nil, err
	}
	if serializable {
		opts = append(opts, clientv3.WithSerializable())
	}
	opts = append(opts, clientv3.WithLimit(f.limit))
	if f.rev > 0 {
		opts = append(opts, clientv3.WithRev(f.rev))
	}
	order, ok := sortOrders[strings.ToUpper(f.order)]
	if !ok {
		return "", nil, app.BadFeature("bad sort order %v", f.order)
	}
	target, ok := sortTargets[strings.ToUpper(f.sortBy)]
	if !ok {
		return "", nil, app.BadFeature("bad sort target %v", f.sortBy)
	}
	opts = append(opts, clientv3.WithSort(target, order))
	if f.keysOnly {
		opts = append(opts, clientv3.WithKeysOnly())
	}
	if f.countOnly {
		opts = append(opts, clientv3.WithCountOnly())
	}
	revs, err := f.revisions()
	return key, append(opts, revs...), err
}

// revisions returns the options that select keys by revision.
func (f *getFlags) revisions() ([]clientv3.OpOption, error) {
	var opts []clientv3.OpOption
	if f.minCreate > 0 {
		opts = append(opts, clientv3.WithMinCreateRev(f.minCreate))
	}
	if f.maxCreate > 0 {
		if f.minCreate > f.maxCreate {
			return nil, app.BadFeature("getMinCreateRev(=%v) > getMaxCreateRev(=%v)",
				f.minCreate, f.maxCreate)
		}
		opts = append(opts, clientv3.WithMaxCreateRev(f.maxCreate))
	}
	if f.minMod > 0 {
		opts = append(opts, clientv3.WithMinModRev(f.minMod))
	}
	if f.maxMod > 0 {
		if f.minMod > f.maxMod {
			return nil, app.BadFeature("getMinModRev(=%v) > getMaxModRev(=%v)", f.minMod, f.maxMod)
		}
		opts = append(opts, clientv3.WithMaxModRev(f.maxMod))
	}
	return opts, nil
}

// fetch reads the keys. With --stream, it reads them as a stream.
func (f *getFlags) fetch(
	ctx context.Context, c *clientv3.Client, key string, opts []clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	if !f.stream {
		return c.Get(ctx, key, opts...)
	}
	parts, err := c.GetStream(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	return clientv3.GetStreamToGetResponse(parts)
}

// fitPrinter applies flags that are supported by only one output format.
func (f *getFlags) fitPrinter(format string, p *app.Printer) error {
	if f.countOnly && format != "fields" {
		return app.BadArgs("--count-only is only for `--write-out=fields`")
	}
	if f.valueOnly {
		if format != "simple" {
			return app.BadArgs("print-value-only is only for `--write-out=simple`")
		}
		p.ValueOnly = true
	}
	return nil
}

func (a commands) getCommand() *cobra.Command {
	var f getFlags
	cmd := a.Make(app.Command{
		Use: "get <key> [range_end]", Short: "Print a key or a range of keys",
		Example: "get config/a\nget config/ --prefix --keys-only\nget config/a --rev 1200 -w json",
		Max:     -1, Words: []app.WordList{app.KeyWords, app.KeyWords}, Flags: f.register,
		Run: func(_ *cobra.Command, args, _ []string) error {
			key, opts, err := f.options(args)
			if err != nil {
				return err
			}
			return a.Ask(a.CommandContext, func(
				ctx context.Context, c *clientv3.Client,
			) (app.Answer, error) {
				resp, err := f.fetch(ctx, c, key, opts)
				if err != nil {
					return app.Answer{}, err
				}
				return app.ShowGet(resp), f.fitPrinter(a.Flags.Format, &a.Printer)
			})
		},
	})
	app.CompleteFlag(cmd, "consistency", "l", "s")
	app.CompleteFlag(cmd, "order", "ASCEND", "DESCEND")
	app.CompleteFlag(cmd, "sort-by", "CREATE", "KEY", "MODIFY", "VALUE", "VERSION")
	return cmd
}
