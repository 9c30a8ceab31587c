package keys

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"leasehold.dev/internal/cli/app"
)

// compareOperators are the operators between a key and a value.
var compareOperators = []string{"=", "!=", "<", ">"}

// parseCompare parses a condition such as mod("key") > "3".
//
// Lease IDs are in hexadecimal, as everywhere. etcdctl crashes on lease comparisons and on unknown
// operators; parseCompare does not.
func parseCompare(line string) (clientv3.Cmp, error) {
	var none clientv3.Cmp
	target, rest, ok := strings.Cut(line, "(")
	if !ok {
		return none, app.BadInput("malformed comparison: %s", line)
	}
	var key, op, value string
	n, err := fmt.Sscanf(rest, "%q) %s %q", &key, &op, &value)
	if n != 3 || !slices.Contains(compareOperators, op) {
		return none, app.BadInput("malformed comparison: %s; got %s(%q) %s %q",
			line, target, key, op, value)
	}
	if err != nil {
		return none, app.BadInput("malformed comparison: %s (%w)", line, err)
	}
	number := func(base int) int64 {
		var v int64
		if v, err = strconv.ParseInt(value, base, 64); err != nil {
			err = app.BadInput("invalid txn compare request: %s", line)
		}
		return v
	}
	switch target {
	case "ver", "version":
		return clientv3.Compare(clientv3.Version(key), op, number(10)), err
	case "c", "create":
		return clientv3.Compare(clientv3.CreateRevision(key), op, number(10)), err
	case "m", "mod":
		return clientv3.Compare(clientv3.ModRevision(key), op, number(10)), err
	case "val", "value":
		return clientv3.Compare(clientv3.Value(key), op, value), nil
	case "lease":
		return clientv3.Compare(clientv3.LeaseValue(key), op, number(16)), err
	}
	return none, app.BadInput("malformed comparison: %s (unknown target %s)", line, target)
}

// parseRequest parses a single request of a transaction: a get, put or del command, possibly
// abbreviated, with the flags of that command. See delFlags.op for risky.
func parseRequest(line string) (op clientv3.Op, risky bool, err error) {
	words, err := splitWords(line)
	if err != nil {
		return op, false, err
	}
	if len(words) < 2 {
		return op, false, app.BadInput("invalid txn compare request: %s", line)
	}
	name, args := words[0], words[1:]
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	parse := func() bool { return fs.Parse(args) == nil }
	switch {
	case isPrefix(name, "put"):
		var f putFlags
		f.register(fs)
		if parse() {
			// Standard input contains the transaction, so it cannot supply a value as well.
			op, name, err := f.op(fs.Args(), strings.NewReader(""))
			if err == nil && name != "" {
				err = app.BadArgs("bad lease ID %q, expecting ID in Hex: "+
					"a transaction does not accept lease names", name)
			}
			return op, false, err
		}
	case isPrefix(name, "get"):
		var f getFlags
		f.register(fs)
		if parse() {
			key, opts, err := f.options(fs.Args())
			return opIf(err, func() clientv3.Op { return clientv3.OpGet(key, opts...) }), false, err
		}
	case isPrefix(name, "del"):
		var f delFlags
		f.register(fs)
		if parse() {
			return f.op(fs.Args())
		}
	}
	return op, false, app.BadInput("invalid txn request: %s", line)
}

func isPrefix(short, name string) bool {
	return short != "" && strings.HasPrefix(name, short)
}

// opIf calls make unless err is set.
func opIf(err error, make func() clientv3.Op) clientv3.Op {
	if err != nil {
		return clientv3.Op{}
	}
	return make()
}
