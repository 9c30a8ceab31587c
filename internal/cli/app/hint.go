package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// maxTypos is the maximum edit distance between the typed text and a suggested name.
const maxTypos = 2

// UnknownCommand runs commands that only have subcommands. It prints the help, or returns an error
// if the subcommand does not exist.
func UnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	problem := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	return withHint(cmd, problem, nearest(args[0], names))
}

// FlagError adds a hint to an error about a flag.
func FlagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if strings.Contains(cmd.Use, "command") {
		err = fmt.Errorf("%w\nPut the command to run, with its flags, after --", err)
	}
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return withHint(cmd, err.Error(), "")
	}
	hint := nearest(unknown.GetSpecifiedName(), flagNames(cmd))
	if hint != "" {
		hint = "--" + hint
	}
	return withHint(cmd, err.Error(), hint)
}

// StrictFlags makes invalid flags exit with ExitBadArgs. It is for commands that run other programs
// and return their exit codes.
func StrictFlags(cmd *cobra.Command) *cobra.Command {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return WithCode(ExitBadArgs, FlagError(cmd, err))
	})
	cmd.Annotations = map[string]string{strict: ""}
	return cmd
}

// strict marks commands set up by StrictFlags.
const strict = "strict"

// IsStrict reports whether cmd or one of its parents is marked as strict.
func IsStrict(cmd *cobra.Command) bool {
	for ; cmd != nil; cmd = cmd.Parent() {
		if _, ok := cmd.Annotations[strict]; ok {
			return true
		}
	}
	return false
}

// RefuseClientFlags returns an error if a command of another package was given a client flag. Such
// a command inherits these flags but cannot use them.
func RefuseClientFlags(cmd *cobra.Command) error {
	var err error
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if err == nil && f.Changed {
			err = withHint(cmd, "unknown flag: --"+f.Name, "")
		}
	})
	return err
}

func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

func withHint(cmd *cobra.Command, problem, hint string) error {
	if hint != "" {
		problem += fmt.Sprintf("\nDid you mean %q?", hint)
	}
	return fmt.Errorf("%s\nRun '%s --help' for usage", problem, cmd.CommandPath())
}

// nearest returns the name most similar to the typed text, or "" if none is similar enough.
func nearest(typed string, names []string) string {
	best, distance := "", maxTypos+1
	slices.Sort(names)
	for _, n := range names {
		d := levenshtein.ComputeDistance(strings.ToLower(typed), strings.ToLower(n))
		if len(typed) > maxTypos && strings.HasPrefix(n, typed) {
			d = 1
		}
		// Any two-letter text is within two typos of any two-letter name.
		if d < distance && d < len(n) {
			best, distance = n, d
		}
	}
	return best
}
