package harness

import "os"

// Environ returns the environment for running the binary, with additional variables. It makes
// commands wait almost as long as the test does, since the machine may be busy. A command that
// times out can then still report what it was waiting for.
func Environ(more ...string) []string {
	const limit = Patience / 2
	return append(append(os.Environ(),
		"LEASEHOLD_COMMAND_TIMEOUT="+limit.String(), "LEASEHOLD_DIAL_TIMEOUT="+limit.String(),
	), more...)
}
