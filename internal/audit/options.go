package audit

import (
	"errors"
	"fmt"
	"slices"
)

// Options says what is recorded, and where.
type Options struct {
	// File is where records go: a file, "stdout" or "stderr". Empty: there are none.
	File string
	// Level is "changes": of users, roles, members, settings and leases; "writes": of keys as well;
	// or "reads": these as well. What is denied is always recorded. Default "changes".
	Level string
	// WhenFull says what becomes of a call whose record cannot be written: "drop" drops and counts
	// the record, "stop" refuses the call. Default "drop".
	WhenFull string
	// MaxMegabytes is the size at which a file is rotated, and MaxFiles how many old ones are kept;
	// 0: all. Defaults 100 and 10.
	MaxMegabytes, MaxFiles int
}

const (
	drop = "drop"
	stop = "stop"
)

// Levels are those of Options, each with less than those after it.
var Levels = []string{"changes", "writes", "reads"}

// Defaults returns the default options.
func Defaults() Options {
	return Options{Level: Levels[0], WhenFull: drop, MaxMegabytes: 100, MaxFiles: 10}
}

// Check says what of the options cannot be.
func (o *Options) Check() error {
	switch {
	case !slices.Contains(Levels, o.Level):
		return fmt.Errorf("--audit-log-level %q is not one of changes, writes, reads", o.Level)
	case o.WhenFull != drop && o.WhenFull != stop:
		return fmt.Errorf("--audit-log-when-full %q is not one of drop, stop", o.WhenFull)
	case o.MaxMegabytes < 1 || o.MaxFiles < 0:
		return errors.New("--audit-log-max-megabytes must be at least 1, and " +
			"--audit-log-max-files must not be negative")
	}
	return nil
}
