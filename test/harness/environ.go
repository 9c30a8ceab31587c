package harness

import "os"

// Environ returns the environment for running the binary, with additional variables. It lets
// commands wait for up to half of Patience, because the machine may be busy. A command then times
// out before the test does, and can report what it was waiting for.
func Environ(more ...string) []string {
	const limit = Patience / 2
	return append(append(os.Environ(),
		"LEASEHOLD_COMMAND_TIMEOUT="+limit.String(), "LEASEHOLD_DIAL_TIMEOUT="+limit.String(),
	), more...)
}
