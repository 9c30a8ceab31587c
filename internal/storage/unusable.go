package storage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// These constants name the files that mark a data directory on which no member can run.
const (
	// Restoring exists while a backup is being restored into the directory. The remains of an
	// interrupted restore must not be mistaken for a new member.
	Restoring = "RESTORING"
	// RolledBack exists after another member has shown that the directory is older than the state
	// that the member once had. The file explains how this was detected.
	RolledBack = "ROLLED-BACK"
)

// These errors explain why no member can run on a data directory; see [Unusable].
var (
	// ErrHalfRestored means that a restore into the directory was interrupted.
	ErrHalfRestored = errors.New("a restore into this data directory was interrupted; " +
		"remove the directory and restore again")
	// ErrRolledBack means that the directory has lost something that the member had promised.
	ErrRolledBack = errors.New("an older state was restored to this data directory: a member " +
		"that uses it would lack data that it has acknowledged")
)

// Unusable returns an error if no member can run on a data directory, even if its data is intact.
func Unusable(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, Restoring)); err == nil {
		return ErrHalfRestored
	}
	name := filepath.Join(dir, RolledBack)
	if why, err := os.ReadFile(name); err == nil {
		return fmt.Errorf("%w (%s). Move %s away, and start the member with --join ADDRESS "+
			"--replace, where ADDRESS is another member's. If you are sure that this is wrong, "+
			"remove %s",
			ErrRolledBack, bytes.TrimSpace(why), dir, name)
	}
	return nil
}
