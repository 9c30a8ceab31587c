package serve

import (
	"path/filepath"
	"slices"
	"strings"
)

// sharedFlags are flags of serve that client commands know as well, before or
// after the command's name. Alone they do not tell that a member is meant.
var sharedFlags = []string{"max-request-bytes", "discovery-srv", "discovery-srv-name"}

// Args takes a program's arguments with its name, as [os.Args], and returns
// those for the command line, without the name. It puts "serve" before them if
// a member is meant: the program is called etcd and is given no command, or
// the first argument is a flag of serve, --version among them.
func Args(argv []string) []string {
	if len(argv) == 0 {
		return nil
	}
	rest := argv[1:]
	program := strings.TrimSuffix(filepath.Base(argv[0]), ".exe")
	asEtcd := program == "etcd" && (len(rest) == 0 || strings.HasPrefix(rest[0], "-"))
	if asEtcd || (len(rest) > 0 && meansServe(rest)) {
		return append([]string{"serve"}, rest...)
	}
	return rest
}

// meansServe reports whether args begin with a flag of serve, and hold one that
// is no client flag.
func meansServe(args []string) bool {
	known := newFlags().fs
	isServes := func(arg string) bool {
		name, ok := flagName(arg)
		return ok && known.Lookup(name) != nil
	}
	if !isServes(args[0]) {
		return false
	}
	return slices.ContainsFunc(args, func(arg string) bool {
		name, _ := flagName(arg)
		return isServes(arg) && !slices.Contains(sharedFlags, name)
	})
}

// flagName returns the name in "-name", "--name" or either with "=value".
func flagName(arg string) (string, bool) {
	name, ok := strings.CutPrefix(arg, "-")
	if !ok {
		return "", false
	}
	name = strings.TrimPrefix(name, "-")
	name, _, _ = strings.Cut(name, "=")
	return name, name != "" && name[0] != '-'
}
