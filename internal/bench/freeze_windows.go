package bench

import (
	"errors"
	"fmt"

	"leasehold.dev/test/process"
)

// freeze fails: there is no signal for it.
func freeze(*process.Process) error {
	return fmt.Errorf("bench: freeze a process: %w", errors.ErrUnsupported)
}
