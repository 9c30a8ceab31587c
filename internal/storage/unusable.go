package storage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// The names of files that lie in a data directory on which no member may run.
const (
	// Restoring lies there while a backup is restored into it. What a killed restore leaves behind
	// must not be taken for a new member and served.
	Restoring = "RESTORING"
	// RolledBack lies there when another member has shown that the directory is older than what the
	// member had. It says how.
	RolledBack = "ROLLED-BACK"
)

// These errors say why no member may run on a data directory: see [Unusable].
var (
	// ErrHalfRestored means that a restore into it was cut off.
	ErrHalfRestored = errors.New("a restore into this data directory was cut off; " +
		"remove the directory and restore again")
	// ErrRolledBack means that it has forgotten something that the member has promised.
	ErrRolledBack = errors.New("an older state was put back onto this data directory: a member on " +
		"it would deny what it has acknowledged")
)

// Unusable says why no member may run on a data directory, although all that is on it may be sound;
// nil if nothing there says so.
func Unusable(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, Restoring)); err == nil {
		return ErrHalfRestored
	}
	name := filepath.Join(dir, RolledBack)
	if why, err := os.ReadFile(name); err == nil {
		return fmt.Errorf("%w (%s). Move %s away, and start the member with --join ADDRESS "+
			"--replace, where ADDRESS is another member's. If you know better, remove %s",
			ErrRolledBack, bytes.TrimSpace(why), dir, name)
	}
	return nil
}
