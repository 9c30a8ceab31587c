package serve

import (
	"path/filepath"
	"slices"
	"strings"
)

// sharedFlags are flags of serve that client commands also have. A command line with only these
// flags does not start a member.
var sharedFlags = []string{"max-request-bytes", "discovery-srv", "discovery-srv-name"}

// Args returns the arguments for the command line, given a program's name and arguments, as in
// [os.Args]. It prepends "serve" if the arguments are intended to run a member. That is the case if
// the program is called etcd and no command is given, or if the first argument is a flag of serve,
// including --version.
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

// meansServe reports whether args begin with a flag of serve and contain at least one flag that
// client commands do not have.
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

// flagName extracts the name from "-name" or "--name", with or without "=value".
func flagName(arg string) (string, bool) {
	name, ok := strings.CutPrefix(arg, "-")
	if !ok {
		return "", false
	}
	name = strings.TrimPrefix(name, "-")
	name, _, _ = strings.Cut(name, "=")
	return name, name != "" && name[0] != '-'
}
