package audit

import (
	"errors"
	"fmt"
	"slices"
)

// Options configures what is recorded and where.
type Options struct {
	// File is the destination of records: a file name, "stdout" or "stderr". If it is empty,
	// nothing is recorded.
	File string
	// Level is "changes", "writes" or "reads". At "changes", changes to users, roles, members,
	// settings and leases are recorded. At "writes", changes to keys are also recorded. At "reads",
	// reads are recorded as well. Denied calls are always recorded. The default is "changes".
	Level string
	// WhenFull specifies what happens to a call whose record cannot be written. With "drop", the
	// record is dropped and counted. With "stop", the call is rejected. The default is "drop".
	WhenFull string
	// MaxMegabytes is the size at which a file is rotated. MaxFiles is the number of old files to
	// keep; 0 keeps all of them. The defaults are 100 and 10.
	MaxMegabytes, MaxFiles int
}

const (
	drop = "drop"
	stop = "stop"
)

// Levels are the values of Options.Level. Each level records less than the next one.
var Levels = []string{"changes", "writes", "reads"}

// Defaults returns the default options.
func Defaults() Options {
	return Options{Level: Levels[0], WhenFull: drop, MaxMegabytes: 100, MaxFiles: 10}
}

// Check returns an error if the options are invalid.
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
