package serve

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"leasehold.dev/internal/settings"
	"leasehold.dev/server"
)

// errHelp means that the user asked for help.
var errHelp = errors.New("serve: help")

// flags holds the values of one command line. Package flag only stores them. The command line is
// parsed here so that the hints can distinguish errors, which is not possible with package flag.
type flags struct {
	fs       *flag.FlagSet
	sections []section
	given    map[string]bool   // set on the command line, by a variable or in the file
	from     map[string]string // source of each given value

	cfg        server.Config
	log        logFlags
	join       joinFlags
	mode       string // compaction mode
	retention  string
	state      string
	configFile string
	version    bool
}

// section is a titled part of the help text.
type section struct {
	title string
	names []string
}

// newFlags returns all flags with their defaults.
func newFlags() *flags {
	f := emptyFlags("serve")
	f.cfg = server.DefaultConfig()
	f.addSections([]addSection{
		{"Member", f.addMember},
		{"Cluster", f.addCluster},
		{"Leases", f.addLease},
		{"Limits", f.addLimits},
		{"Backups", f.addBackup},
		{"Client security", f.addClientSecurity},
		{"Peer security", f.addPeerSecurity},
		{"HTTP and metrics", f.addHTTP},
		{"Logging", f.addLogging},
		{"Other", f.addOther},
	})
	for _, i := range ignored {
		f.fs.Var(&ignoredValue{flag: i}, i.name, i.why)
	}
	return f
}

// emptyFlags returns an empty set of flags for a command.
func emptyFlags(command string) *flags {
	f := &flags{
		fs:    flag.NewFlagSet(command, flag.ContinueOnError),
		given: make(map[string]bool),
		from:  make(map[string]string),
	}
	f.fs.SetOutput(io.Discard)
	return f
}

// addSection adds the flags of one section.
type addSection struct {
	title string
	add   func()
}

func (f *flags) addSections(list []addSection) {
	for _, s := range list {
		before := f.names()
		s.add()
		names := slices.DeleteFunc(f.names(), func(n string) bool {
			return slices.Contains(before, n)
		})
		f.sections = append(f.sections, section{s.title, names})
	}
}

// names returns the names of the flags defined so far, sorted.
func (f *flags) names() []string {
	var names []string
	f.fs.VisitAll(func(x *flag.Flag) { names = append(names, x.Name) })
	return names
}

// parse reads a command line the way etcd does: -name and --name, with "=value" or with the value
// as the next argument. Booleans stand alone or have "=value". If a flag is repeated, the last
// value wins.
func (f *flags) parse(args []string) error {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		name, ok := flagName(arg)
		if !ok {
			return usageError("%q is not a flag; %s accepts only flags", arg, f.fs.Name())
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

// set sets x to a value. The source is the name of a flag or variable, for errors.
func (f *flags) set(x *flag.Flag, value, source string) error {
	if err := x.Value.Set(value); err != nil {
		return usageError("invalid value %q for %s: %s", value, source, because(x, err))
	}
	f.given[x.Name], f.from[x.Name] = true, "variable "+source
	if strings.HasPrefix(source, "--") {
		f.from[x.Name] = "flag"
	}
	return nil
}

// because explains why x rejected a value.
func because(x *flag.Flag, err error) string {
	var kind any
	if g, ok := x.Value.(flag.Getter); ok {
		kind = g.Get()
	}
	_, isDuration := kind.(time.Duration)
	why := err.Error()
	switch {
	case why != "parse error": // package flag returns no other text
	case isBool(x):
		why = "it must be true or false"
	case isDuration:
		why = "it must be a duration such as 10s"
	default:
		why = "it must be an integer"
	}
	return why
}

// read reads the command line, then environment variables, then the file. Earlier sources override
// later ones. It returns warnings about values that have no effect here.
func (f *flags) read(args, env []string) (warnings []string, err error) {
	if err := f.parse(args); err != nil || f.version {
		return nil, err
	}
	warnings, err = f.readRest(env)
	return warnings, f.located(err)
}

// readRest reads the environment variables and the file. Its error has one line per mistake.
func (f *flags) readRest(env []string) ([]string, error) {
	warnings, badEnv := f.readEnv(env)
	more, badFile := f.readFile()
	f.cfg.Raft.Adaptive = !f.given["heartbeat-interval"] && !f.given["election-timeout"]
	return append(append(warnings, more...), f.warnings()...), errors.Join(badEnv, badFile)
}

// load reads and checks all settings. Its error lists all mistakes. If the command line cannot be
// parsed, however, it contains only that mistake.
func (f *flags) load(
	args, env []string, hostname string,
) (cfg server.Config, warnings []string, err error) {
	if err := f.parse(args); err != nil || f.version {
		return cfg, nil, err
	}
	warnings, err = f.readRest(env)
	cfg, more, wrong := f.checked(hostname)
	return cfg, append(warnings, more...), f.located(errors.Join(err, wrong))
}

// located turns an error with one line per mistake into a usage error. To each line about a flag
// that was not set on the command line, it adds where the flag was set.
func (f *flags) located(err error) error {
	if err == nil {
		return nil
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		lines[i] = f.locate(line)
	}
	if len(lines) == 1 {
		return usageError("%s", lines[0])
	}
	for i, line := range lines {
		lines[i] = "\n  " + strings.TrimPrefix(line, server.ErrConfig.Error()+": ")
	}
	return usageError("%d errors in the settings:%s", len(lines), strings.Join(lines, ""))
}

func (f *flags) locate(text string) string {
	var where []string
	for _, m := range namedFlag.FindAllStringSubmatch(text, -1) {
		from := f.from[m[1]]
		if w := fmt.Sprintf("--%s is set by %s", m[1], from); f.given[m[1]] && from != "flag" &&
			!slices.Contains(where, w) {
			where = append(where, w)
		}
	}
	if len(where) > 0 {
		text += " (" + strings.Join(where, ", ") + ")"
	}
	return text
}

// namedFlag matches flag names in an error.
var namedFlag = regexp.MustCompile(`--([a-z][a-z0-9-]*)`)

func isBool(x *flag.Flag) bool {
	b, ok := x.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

func (f *flags) unknown(name string) error {
	if near := settings.Nearest(name, f.names()); near != "" {
		return usageError("unknown flag --%s; did you mean --%s?", name, near)
	}
	return usageError("unknown flag --%s; see leasehold %s --help", name, f.fs.Name())
}

// warnings returns a warning for each given flag that has no effect here.
func (f *flags) warnings() []string {
	var w []string
	f.fs.VisitAll(func(x *flag.Flag) {
		v, ok := x.Value.(*ignoredValue)
		if ok && f.given[x.Name] && v.text != v.flag.def {
			what := "flag --" + x.Name
			if file, ok := strings.CutPrefix(f.from[x.Name], "file "); ok {
				what = fmt.Sprintf("setting %s (%s)", x.Name, file)
			}
			w = append(w, fmt.Sprintf("%s is accepted but ignored: %s", what, v.flag.why))
		}
	})
	return w
}

// help prints all flags that have an effect, and lists the names of the others.
func (f *flags) help(w io.Writer) {
	fmt.Fprint(w, "Run one member until a signal stops it.\n\nUsage:\n  leasehold serve [flags]\n\n"+
		"Each flag can also be set by an environment variable (LEASEHOLD_DATA_DIR or\n"+
		"ETCD_DATA_DIR for --data-dir), or in the file named by --config-file (\"data-dir:\n"+
		"/var/lib/leasehold\"). Flags override variables, LEASEHOLD_ overrides ETCD_, and\n"+
		"variables override the file. See \"leasehold config --help\".\n")
	f.helpSections(w)
	var rest []string
	for _, i := range ignored {
		if !i.hidden {
			rest = append(rest, "--"+i.name)
		}
	}
	fmt.Fprintf(w, "\netcd flags that are accepted with a warning and have no effect:\n  %s\n",
		strings.Join(rest, "\n  "))
}

// helpSections prints the flags by section.
func (f *flags) helpSections(w io.Writer) {
	for _, s := range f.sections {
		fmt.Fprintf(w, "\n%s:\n", s.title)
		for _, name := range s.names {
			x := f.fs.Lookup(name)
			fmt.Fprintf(w, "  --%s '%s'", name, x.DefValue)
			column := helpWidth // usage texts begin on a new line
			for _, word := range strings.Fields(x.Usage) {
				if column += 1 + len(word); column > helpWidth {
					column = 6 + len(word)
					word = "\n      " + word
				} else {
					word = " " + word
				}
				fmt.Fprint(w, word)
			}
			fmt.Fprintln(w)
		}
	}
}

const helpWidth = 90
