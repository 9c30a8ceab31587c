package server

import (
	"errors"
	"fmt"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/storage"
)

// ErrTooOld means that this release is too old for the member: a newer one has written something
// into its data or into the cluster's log that this one cannot read. [New] and [Server.Run] return
// it. Nothing of what is not known was acted on, and starting the member again changes nothing:
// it needs the newer release.
var ErrTooOld = errors.New("server: this release is too old for the data of this member")

// tooOld says what to do when err comes from what a newer release wrote. Other errors it leaves
// as they are.
func tooOld(err error, dir string) error {
	if !errors.Is(err, encoding.ErrNewer) && !errors.Is(err, storage.ErrVersion) {
		return err
	}
	return fmt.Errorf("%w: a newer release wrote what it does not know. Nothing of that was done, "+
		"and the data in %s are as they were. Start the member with the newer release, which the "+
		"other members run or did run: %w", ErrTooOld, dir, err)
}
