package serve

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"leasehold.dev/server"
)

// errHelp means that help was asked for.
var errHelp = errors.New("serve: help")

// A UsageError is a mistake on the command line or in a variable that stands
// for a flag.
type UsageError struct{ text string }

// Error implements error.
func (e *UsageError) Error() string { return e.text }

// ExitCode is the exit code that goes with the error: that of etcd.
func (e *UsageError) ExitCode() int { return 2 }

func usageError(format string, args ...any) error {
	return &UsageError{text: fmt.Sprintf(format, args...)}
}

// flags is one reading of the command line. Package flag is not used to parse,
// only to hold: its complaints cannot be told apart, and a hint needs to know.
type flags struct {
	fs       *flag.FlagSet
	sections []section
	given    map[string]bool // on the command line or by a variable

	cfg        server.Config
	log        logFlags
	join       joinFlags
	mode       string // of compaction
	retention  string
	state      string
	configFile string
	version    bool
}

// section is a heading of the help text.
type section struct {
	title string
	names []string
}

// newFlags returns all flags, with their defaults.
func newFlags() *flags {
	f := &flags{
		fs:    flag.NewFlagSet("serve", flag.ContinueOnError),
		given: make(map[string]bool),
		cfg:   server.DefaultConfig(),
	}
	f.fs.SetOutput(io.Discard)
	for _, s := range []struct {
		title string
		add   func()
	}{
		{"Member", f.addMember},
		{"Cluster", f.addCluster},
		{"Leases", f.addLease},
		{"Limits", f.addLimits},
		{"Client security", f.addClientSecurity},
		{"Peer security", f.addPeerSecurity},
		{"HTTP and metrics", f.addHTTP},
		{"Logging", f.addLogging},
		{"Other", f.addOther},
	} {
		before := f.names()
		s.add()
		names := slices.DeleteFunc(f.names(), func(n string) bool {
			return slices.Contains(before, n)
		})
		f.sections = append(f.sections, section{s.title, names})
	}
	for _, i := range ignored {
		f.fs.Var(&ignoredValue{flag: i}, i.name, i.why)
	}
	return f
}

// names returns the names of the flags defined so far, sorted.
func (f *flags) names() []string {
	var names []string
	f.fs.VisitAll(func(x *flag.Flag) { names = append(names, x.Name) })
	return names
}

// parse reads a command line as etcd does: -name and --name, with "=value" or
// the value as the next argument, booleans bare or with "=value"; of a flag
// given twice the last counts.
func (f *flags) parse(args []string) error {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		name, ok := flagName(arg)
		if !ok {
			return usageError("%q is not a flag; serve takes flags only", arg)
		}
		if name == "h" || name == "help" {
			return errHelp
		}
		x := f.fs.Lookup(name)
		if x == nil {
			return f.unknown(name)
		}
		_, value, hasValue := strings.Cut(arg, "=")
		switch {
		case hasValue:
		case isBool(x):
			value = "true"
		case len(args) == 0:
			return usageError("flag --%s needs a value", name)
		default:
			value, args = args[0], args[1:]
		}
		if err := f.set(x, value, "--"+name); err != nil {
			return err
		}
	}
	return nil
}

// set gives x a value that came from source, a flag or a variable.
func (f *flags) set(x *flag.Flag, value, source string) error {
	if err := x.Value.Set(value); err != nil {
		why := err.Error()
		if why == "parse error" { // all that package flag says
			if why = "it is not a whole number"; isBool(x) {
				why = "it is neither true nor false"
			}
		}
		return usageError("invalid value %q for %s: %s", value, source, why)
	}
	f.given[x.Name] = true
	return nil
}

func isBool(x *flag.Flag) bool {
	b, ok := x.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

func (f *flags) unknown(name string) error {
	if near := nearest(name, f.names()); near != "" {
		return usageError("unknown flag --%s; did you mean --%s?", name, near)
	}
	return usageError("unknown flag --%s; see leasehold serve --help", name)
}

// nearest returns the name that was most likely meant, or nothing.
func nearest(typed string, names []string) string {
	best, least := "", max(len(typed)/3, 2)+1
	for _, n := range names {
		// A name of two letters is two typos away from anything.
		if d := distance(typed, n); d < least && d < len(n) && d < len(typed) {
			best, least = n, d
		}
	}
	return best
}

// distance counts the letters to insert, delete or replace to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// warnings names the flags that were given and mean nothing here.
func (f *flags) warnings() []string {
	var w []string
	f.fs.VisitAll(func(x *flag.Flag) {
		v, ok := x.Value.(*ignoredValue)
		if ok && f.given[x.Name] && v.text != v.flag.def {
			w = append(w, fmt.Sprintf("flag --%s is accepted and ignored: %s", x.Name, v.flag.why))
		}
	})
	return w
}

// help writes all flags that do something, and the names of the others.
func (f *flags) help(w io.Writer) {
	fmt.Fprint(w, "Run one member, until a signal ends it.\n\nUsage:\n  leasehold serve [flags]\n\n"+
		"Every flag may be given as a variable: LEASEHOLD_DATA_DIR for --data-dir, or\n"+
		"ETCD_DATA_DIR. A flag beats both, and LEASEHOLD_ beats ETCD_.\n")
	for _, s := range f.sections {
		fmt.Fprintf(w, "\n%s:\n", s.title)
		for _, name := range s.names {
			x := f.fs.Lookup(name)
			fmt.Fprintf(w, "  --%s '%s'\n      %s\n", name, x.DefValue, x.Usage)
		}
	}
	var rest []string
	for _, i := range ignored {
		if !i.hidden {
			rest = append(rest, "--"+i.name)
		}
	}
	fmt.Fprintf(w, "\nFlags of etcd that are accepted, with a warning, and do nothing:\n  %s\n",
		strings.Join(rest, "\n  "))
}
