package host

import (
	"io/fs"
	"math"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// Memory returns the number of bytes of memory that this process can use. That is the machine's
// memory, or less if control groups or GOMEMLIMIT set a lower limit. It returns 0 if the number is
// unknown.
func Memory() uint64 { return min(memory(), uint64(debug.SetMemoryLimit(-1))) }

// groupMemory returns the lowest memory limit that any control group imposes on this process
// (cgroups(7)). It returns math.MaxUint64 if there is no limit. root is the machine's file system.
func groupMemory(root fs.FS) uint64 {
	out := uint64(math.MaxUint64)
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		dir, file := "sys/fs/cgroup", "memory.max"
		switch kinds := strings.Split(fields[1], ","); {
		case fields[1] == "": // cgroups version 2
		case slices.Contains(kinds, "memory"):
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// A container may see either its own group as the root, or the group's path on the machine.
		for group := path.Clean("/" + fields[2]); ; group = path.Dir(group) {
			text, _ := fs.ReadFile(root, path.Join(dir, group, file))
			if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
				out = min(out, n)
			}
			if group == "/" {
				break
			}
		}
	}
	return out
}
