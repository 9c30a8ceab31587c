package audit

import (
	"errors"
	"fmt"
	"slices"
)

// Options configures what is recorded, and where.
type Options struct {
	// File is the destination of records: a file, "stdout" or "stderr". If it is empty, there are
	// no records.
	File string
	// Level is "changes", for changes to users, roles, members, settings and leases; "writes", for
	// changes to keys as well; or "reads", for reads as well. Denied calls are always recorded. The
	// default is "changes".
	Level string
	// WhenFull is what happens to a call whose record cannot be written: "drop" drops and counts
	// the record, "stop" refuses the call. The default is "drop".
	WhenFull string
	// MaxMegabytes is the size at which a file is rotated, and MaxFiles the number of old files
	// that are kept; 0 keeps all. The defaults are 100 and 10.
	MaxMegabytes, MaxFiles int
}

const (
	drop = "drop"
	stop = "stop"
)

// Levels are the values of Options.Level, each of which records less than those after it.
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
