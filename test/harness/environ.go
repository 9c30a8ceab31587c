package harness

import "os"

// Environ returns the environment for a command of the binary, with additional variables. It makes
// the command wait almost as long as the test does, as a busy machine needs, and then report what
// it waited for.
func Environ(more ...string) []string {
	const limit = Patience / 2
	return append(append(os.Environ(),
		"LEASEHOLD_COMMAND_TIMEOUT="+limit.String(), "LEASEHOLD_DIAL_TIMEOUT="+limit.String(),
	), more...)
}
