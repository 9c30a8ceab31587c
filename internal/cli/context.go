package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// contexts is what the file of contexts says. A context is a set of client flags under a name.
type contexts struct {
	Current  string                       `json:"current" yaml:"current,omitempty"`
	Contexts map[string]map[string]string `json:"contexts" yaml:"contexts"`

	path string
}

// inNoContext are the client flags that a context does not have, and why.
var inNoContext = map[string]string{
	"password":       "a file keeps no password: use --token-file, or leave it to be asked for",
	"auth-jwt-token": "a file keeps no token: use --token-file",
	"context":        "it says which context is meant",
	"output":         "use --write-out",
	"debug":          "give it to the command",
}

// contextName is what the name of a context looks like.
var contextName = regexp.MustCompile(`^[\w][\w.@-]*$`)

// errNoPlace means that there can be no contexts.
var errNoPlace = errors.New(
	"there is no place for contexts: set HOME, XDG_CONFIG_HOME or LEASEHOLD_CONTEXT_FILE")

// contextPath is where the contexts are: LEASEHOLD_CONTEXT_FILE, or a file in the directory where
// the user's programs keep their settings.
func contextPath(getenv func(string) string) (string, error) {
	if path := getenv("LEASEHOLD_CONTEXT_FILE"); path != "" {
		return path, nil
	}
	dir := getenv("XDG_CONFIG_HOME")
	if dir == "" && runtime.GOOS == "windows" {
		dir = getenv("AppData")
	}
	if home := getenv("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".config")
	}
	if dir == "" {
		return "", errNoPlace
	}
	return filepath.Join(dir, "leasehold", "contexts.yaml"), nil
}

// readContexts reads the file of contexts. If there is none, there are no contexts.
func readContexts(getenv func(string) string) (*contexts, error) {
	path, err := contextPath(getenv)
	if err != nil {
		return nil, err
	}
	all := &contexts{path: path}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(all); err != nil && !errors.Is(err, io.EOF) { // which means: nothing
		return nil, fmt.Errorf("contexts: %s: %w; mend the file or remove it", all.path, err)
	}
	return all, nil
}

// write replaces the file. Others do not see a part of it, and only the user can read it.
func (all *contexts) write() error {
	text, err := yaml.Marshal(all)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(all.path), 0o700); err != nil {
		return err
	}
	f, err := createPart(all.path) // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), all.path)
}

// check fails if there is no context of a name. The empty name stands for none.
func (all *contexts) check(name string) error {
	if _, ok := all.Contexts[name]; ok || name == "" {
		return nil
	}
	text := fmt.Sprintf("there is no context %q in %s", name, all.path)
	if hint := nearest(name, slices.Collect(maps.Keys(all.Contexts))); hint != "" {
		text += fmt.Sprintf("\nDid you mean %q?", hint)
	}
	return withCode(exitBadArgs, errors.New(text))
}

// sameQuestion are flags that answer one question: a context says nothing of it if one of them is
// given. So no user of one cluster is shown to another by a flag that was forgotten.
var sameQuestion = [][]string{
	{"endpoints", "discovery-srv", "discovery-srv-name", "insecure-discovery"},
	{"user", "password", "auth-jwt-token", "token-file"},
	{"cert", "key"},
}

// fromContext gives the flags that neither the command line nor a variable gave the values of the
// context: that of --context, or the current one. If a command says where the cluster is, the
// current one is not for it.
func (g *globalFlags) fromContext(fs *pflag.FlagSet, getenv func(string) string) error {
	chosen := fs.Changed("context")
	if chosen && g.context == "" ||
		!chosen && (fs.Changed("endpoints") || fs.Changed("discovery-srv")) {
		return nil
	}
	all, err := readContexts(getenv)
	if err != nil {
		if errors.Is(err, errNoPlace) && !chosen {
			return nil
		}
		return err
	}
	name := all.Current
	if chosen {
		name = g.context
	}
	if err := all.check(name); err != nil {
		return err
	}
	if err := setUnset(fs, all.Contexts[name]); err != nil {
		return fmt.Errorf("context %s in %s: %w", name, all.path, err)
	}
	return nil
}

// setUnset sets flags, but for those that are given, and those that answer the same question.
func setUnset(fs *pflag.FlagSet, flags map[string]string) error {
	given := make(map[string]bool)
	fs.VisitAll(func(f *pflag.Flag) { given[f.Name] = f.Changed })
	for _, list := range sameQuestion {
		if slices.ContainsFunc(list, fs.Changed) {
			for _, flag := range list {
				given[flag] = true
			}
		}
	}
	for _, flag := range slices.Sorted(maps.Keys(flags)) {
		if why, never := inNoContext[flag]; never {
			return fmt.Errorf("%s is no flag of a context: %s", flag, why)
		}
		if fs.Lookup(flag) == nil {
			return fmt.Errorf("there is no flag --%s", flag)
		}
		if given[flag] {
			continue
		}
		if err := fs.Set(flag, flags[flag]); err != nil {
			return fmt.Errorf("invalid value %q for %s: %w", flags[flag], flag, err)
		}
	}
	return nil
}

// withoutSettings marks commands for which neither variables nor contexts count as flags.
const withoutSettings = "without settings"

func (a *app) contextCommand() *cobra.Command {
	cmd := family("context", "Keep the flags of clusters under names",
		a.contextAdd(), a.contextUse(), a.contextList(), a.contextRemove())
	cmd.Long = `Keeps client flags, such as --endpoints and --cacert, under names, so that a command
need not repeat them. A command takes the flags of the context that --context or LEASEHOLD_CONTEXT
names, or else of the current one, as "context use" has said. What the command line or a variable
says of the same is taken instead. A command that says by --endpoints where the cluster is does
not look at the current context; --context '' looks at none.

Contexts are in LEASEHOLD_CONTEXT_FILE, or in leasehold/contexts.yaml below XDG_CONFIG_HOME or
~/.config. The file has no passwords and no tokens: --token-file names a file with a token.`
	for _, c := range cmd.Commands() {
		c.Annotations = map[string]string{withoutSettings: ""}
	}
	return cmd
}

// changeContexts reads the contexts, changes them, and writes them.
func (a *app) changeContexts(change func(*contexts) error) error {
	all, err := readContexts(a.getenv)
	if err != nil {
		return err
	}
	if err := change(all); err != nil {
		return err
	}
	return all.write()
}

func (a *app) contextAdd() *cobra.Command {
	var use, replace bool
	cmd := &cobra.Command{
		Use:   "add <name> [client flags]",
		Short: "Keeps the client flags of this command under a name",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !contextName.MatchString(args[0]) {
				return badArgs("a context needs one name of letters, digits, dots and dashes")
			}
			flags, err := a.contextFlags()
			if err != nil {
				return err
			}
			return a.changeContexts(func(all *contexts) error {
				if _, there := all.Contexts[args[0]]; there && !replace {
					return badArgs("there is a context %q; --replace replaces it", args[0])
				}
				if all.Contexts == nil {
					all.Contexts = make(map[string]map[string]string)
				}
				all.Contexts[args[0]] = flags
				if use {
					all.Current = args[0]
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&use, "use", false, "Make it the current context, too")
	cmd.Flags().BoolVar(&replace, "replace", false, "Replace a context of this name")
	return cmd
}

// contextFlags returns the flags of the command line as a context keeps them: with the full paths
// of files.
func (a *app) contextFlags() (map[string]string, error) {
	if _, err := a.discover(); err != nil {
		return nil, err
	}
	if strings.Contains(a.flags.auth.user, ":") {
		return nil, badArgs("--user: %s", inNoContext["password"])
	}
	out, err := make(map[string]string), error(nil)
	a.flags.set.VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		why, never := inNoContext[f.Name]
		switch {
		case !f.Changed || err != nil || f.Name == "output": // which sets write-out
			return
		case never:
			err = badArgs("--%s: %s", f.Name, why)
		case slices.Contains([]string{"cacert", "cert", "key", "token-file"}, f.Name):
			if value, err = filepath.Abs(value); err == nil {
				_, err = os.Stat(value)
			}
			err = withCode(exitBadArgs, err)
		}
		out[f.Name] = value
	})
	if err == nil && len(out) == 0 {
		err = badArgs("a context needs client flags, such as --endpoints host:2379")
	}
	return out, err
}

func (a *app) contextUse() *cobra.Command {
	var none bool
	cmd := &cobra.Command{
		Use: "use <name> | --none",

		ValidArgsFunction: a.completeContext,

		Short: "Makes a context the current one",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if none == (len(args) == 1) || len(args) > 1 {
				return badArgs("context use needs one name, or --none")
			}
			name := strings.Join(args, "")
			return a.changeContexts(func(all *contexts) error {
				all.Current = name
				return all.check(name)
			})
		},
	}
	cmd.Flags().BoolVar(&none, "none", false, "No context is the current one")
	return cmd
}

func (a *app) contextRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove <name>",

		ValidArgsFunction: a.completeContext,

		Short: "Forgets a context",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("context remove needs one name")
			}
			return a.changeContexts(func(all *contexts) error {
				if err := all.check(args[0]); err != nil {
					return err
				}
				delete(all.Contexts, args[0])
				if all.Current == args[0] {
					all.Current = ""
				}
				return nil
			})
		},
	}
}

func (a *app) contextList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Lists the contexts with their flags",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := readContexts(a.getenv)
			if err != nil {
				return err
			}
			if a.printer, err = newPrinter(a.flags.format, a.flags.hex); err != nil {
				return err
			}
			return a.show(showContexts(all))
		},
	}
}

func showContexts(all *contexts) answer {
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(all.Contexts)) {
		var flags []string
		for _, f := range slices.Sorted(maps.Keys(all.Contexts[name])) {
			flags = append(flags, fmt.Sprintf("--%s=%s", f, readable(all.Contexts[name][f])))
		}
		rows = append(rows, []string{readable(name), strings.Join(flags, " "), ""})
		if name == all.Current {
			rows[len(rows)-1][2] = "current"
		}
	}
	return answer{
		simple: func(p *page) {
			for _, row := range rows {
				p.printf("%s\n", strings.Join(slices.DeleteFunc(slices.Clone(row),
					func(s string) bool { return s == "" }), "  "))
			}
		},
		table: func() ([]string, [][]string) { return []string{"NAME", "FLAGS", "CURRENT"}, rows },
		json:  all,
	}
}
