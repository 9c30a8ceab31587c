package harness

import "os"

// Environ returns the variables of a command of the binary, with more of them. By these it waits
// for a busy machine almost as long as the test does, and then says for what.
func Environ(more ...string) []string {
	const limit = Patience / 2
	return append(append(os.Environ(),
		"LEASEHOLD_COMMAND_TIMEOUT="+limit.String(), "LEASEHOLD_DIAL_TIMEOUT="+limit.String(),
	), more...)
}
