package keys

import (
	"errors"
	"io"
	"slices"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Errors about the arguments of a watch.
var (
	errArgCount     = errors.New("bad number of arguments")
	errArgsAndEnv   = errors.New("bad number of arguments (found conflicting environment key)")
	errNoCommand    = errors.New("bad number of arguments (found separator --, but no commands)")
	errEndAndPrefix = errors.New("`range_end` and `--prefix` are mutually exclusive")
)

type watchFlags struct {
	rev            int64
	prefix         bool
	interactive    bool
	prevKV         bool
	progressNotify bool
}

func (f *watchFlags) register(fs *pflag.FlagSet) {
	fs.BoolVarP(&f.interactive, "interactive", "i", false, "read watches from the standard input")
	fs.BoolVar(&f.prefix, "prefix", false, "all keys that begin with <key>")
	fs.Int64Var(&f.rev, "rev", 0, "first revision to print (0: the next)")
	fs.BoolVar(&f.prevKV, "prev-kv", false, "print the previous key and value as well")
	fs.BoolVar(&f.progressNotify, "progress-notify", false,
		"print periodic progress notifications from the server")
}

// watchArgs are the non-flag arguments of a watch.
type watchArgs struct {
	keys []string // a key, or a key and the end of its range
	exec []string // the command to run for each event, if any
}

// splitWatchArgs interprets the arguments of a watch. dash is the number of arguments before "--",
// or -1 without "--". envKeys contains the keys from the environment.
func splitWatchArgs(args []string, dash int, envKeys []string) (watchArgs, error) {
	w := watchArgs{keys: args}
	if dash >= 0 {
		w = watchArgs{keys: args[:dash], exec: args[dash:]}
		if len(w.exec) == 0 {
			return watchArgs{}, errNoCommand
		}
	}
	if len(envKeys) > 0 {
		if len(w.keys) > 0 {
			return watchArgs{}, errArgsAndEnv
		}
		w.keys = envKeys
	}
	if len(w.keys) < 1 || len(w.keys) > 2 {
		return watchArgs{}, errArgCount
	}
	return w, nil
}

// parseWatchLine parses a line of an interactive watch, except for its first word.
func parseWatchLine(words, envKeys []string) (watchFlags, watchArgs, error) {
	var f watchFlags
	fs := pflag.NewFlagSet("watch", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	f.register(fs)
	if err := fs.Parse(words); err != nil {
		return f, watchArgs{}, err
	}
	w, err := splitWatchArgs(slices.Clone(fs.Args()), fs.ArgsLenAtDash(), envKeys)
	return f, w, err
}

// options returns the options for watching w.
func (f *watchFlags) options(w watchArgs) ([]clientv3.OpOption, error) {
	opts := []clientv3.OpOption{clientv3.WithRev(f.rev)}
	if len(w.keys) == 2 {
		if f.prefix {
			return nil, errEndAndPrefix
		}
		opts = append(opts, clientv3.WithRange(w.keys[1]))
	}
	if f.prefix {
		opts = append(opts, clientv3.WithPrefix())
	}
	if f.prevKV {
		opts = append(opts, clientv3.WithPrevKV())
	}
	if f.progressNotify {
		opts = append(opts, clientv3.WithProgressNotify())
	}
	return opts, nil
}
