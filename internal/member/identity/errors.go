package identity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/version"
)

// ErrConfig is wrapped by errors about the configuration.
var ErrConfig = errors.New("server: bad configuration")

// These errors mean that a member needs a different release. server.New and Run return them. The
// data is unchanged, because a release does not modify data that it cannot read. Restarting the
// member does not help.
var (
	// ErrTooOld means that this release is too old for the member. A newer release has written
	// something to the member's data or to the cluster's log that this release cannot read.
	ErrTooOld = errors.New("server: this release is too old for the data of this member")
	// ErrUnsupportedVersion means that this release does not support the version of the member's
	// cluster.
	ErrUnsupportedVersion = errors.New(
		"server: this release does not support the version of the cluster")
)

// ErrUnapplied is wrapped by the error that a member returns when it stops because it cannot apply
// a log entry.
var ErrUnapplied = errors.New("server: stopped at an entry that this release cannot apply")

// OtherRelease adds a remedy to an error that calls for a different release. It returns other
// errors unchanged.
func OtherRelease(err error, dir string) error {
	switch {
	case errors.Is(err, encoding.ErrNewer):
		return fmt.Errorf("%w: a newer release wrote something that this release cannot read. "+
			"Nothing was done, and the data in %s is unchanged. Start the member with the newer "+
			"release, which the other members run or ran (this is %s): "+
			"%w", ErrTooOld, dir, thisRelease(), err)
	case errors.Is(err, encoding.ErrOlder):
		return UnsupportedVersion(err, dir)
	default:
		return err
	}
}

// UnsupportedVersion wraps an error about a cluster version that this release does not support, and
// adds a remedy.
func UnsupportedVersion(why error, dir string) error {
	return fmt.Errorf("%w. Nothing was done, and the data in %s is unchanged. Start the member "+
		"with a release that supports it, like the other members (this is %s; leasehold endpoint "+
		"status shows the others'): %w", ErrUnsupportedVersion, dir, thisRelease(), why)
}

func thisRelease() string {
	return fmt.Sprintf("release %s, for cluster versions %v", version.Version, version.Spoken)
}

// ErrLost is wrapped by the error that a member returns when it stops because the cluster has
// recorded it with different data.
var ErrLost = errors.New("server: the cluster expects this member to have different data")

// ErrContradicted is wrapped by the error that a member returns when it stops because another
// member contradicts its log.
var ErrContradicted = errors.New("server: stopped, because a message from another member " +
	"contradicts this member's data")

// LostData returns the error for a member that has lost its data. It includes a remedy.
func LostData(dir string) error {
	return fmt.Errorf("%w: without it the member would lack data that it has acknowledged. Start it "+
		"with its own data. If that is lost, remove %s and start it with --join ADDRESS "+
		"--replace, where ADDRESS is another member's: this removes the lost member and adds a "+
		"new one in its place", ErrLost, dir)
}

// RolledBack returns the error for a member whose disk contains less of the log than another member
// knows that it had. The error includes a remedy. RolledBack leaves a note that prevents the member
// from starting again, because a leader that does not know of the lost entries would not detect the
// loss.
func RolledBack(err error, dir string) error {
	if errors.Is(err, replica.ErrImpossible) {
		note := fmt.Sprintf("%s: %v\n", time.Now().UTC().Format(time.RFC3339), err)
		err = damaged{errors.Join(err, leaveNote(dir, storage.RolledBack, note))}
	}
	return fmt.Errorf("%w: an older state was restored, the data is a copy of another member's, "+
		"or outsiders can reach the peer URLs (keep them out with --peer-cert-file or "+
		"--peer-token-file). If the disk is at fault, remove %s and start the member with --join ADDRESS "+
		"--replace, where ADDRESS is another member's: %w", ErrContradicted, dir, err)
}

// leaveNote durably writes a file to a data directory.
func leaveNote(dir, name, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close(), syncDir(dir))
}

// ErrCopied is wrapped by the error that a member returns when it stops because another process has
// the same identity.
var ErrCopied = errors.New("server: another process with this member's identity is running")

// copiedData returns the error for two processes with the same identity. It includes a remedy.
func copiedData(dir string) error {
	return fmt.Errorf("%w: %s is a copy of its data directory, or the other process runs on a "+
		"copy. Both would vote and acknowledge as one member. Find the other process. If it is "+
		"the right one, remove %s; to add a member, start with an empty data directory and "+
		"--join ADDRESS. If this is the right one, stop the other process and restart this one",
		ErrCopied, dir, dir)
}

// exitDamaged is the exit code of a damaged member. If the member were restarted, it would exit in
// the same way.
const exitDamaged = 8

// Damaged marks err as the final error of a member whose state differs from that of a majority of
// the voters, or is older than its own earlier state. Each restart from the same data directory
// ends in the same way.
func Damaged(err error) error { return damaged{err} }

type damaged struct{ error }

// ExitCode returns the exit code of the error.
func (damaged) ExitCode() int { return exitDamaged }

// Unwrap returns the error itself.
func (e damaged) Unwrap() error { return e.error }

// ErrRemoved means that the member must stop permanently. In that case, Run returns nil, because
// the stop was requested.
var ErrRemoved = errors.New("server: this member was removed from the cluster")
