package serve

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"leasehold.dev/internal/host"
	"leasehold.dev/server"
)

// system runs the checks that are available only on Linux.
func (d *doctor) system(cfg *server.Config) {
	if memory := host.Memory(); memory > 0 {
		d.memory(memory, cfg.Limits.QuotaBackendBytes)
	}
	var t unix.Timex
	if state, err := unix.Adjtimex(&t); err == nil && state == unix.TIME_ERROR {
		d.say(advice, "time", "the time of day is not synchronized: leases do not need that, but "+
			"certificates and logs do")
	} else if err == nil {
		d.say(fine, "time", "the time of day is synchronized")
	}
	const pages = "/sys/kernel/mm/transparent_hugepage/enabled"
	if text, err := os.ReadFile(pages); err == nil && strings.Contains(string(text), "[always]") {
		d.say(advice, "huge pages", "always, which makes a member use more memory; write madvise to %s",
			pages)
	}
}
