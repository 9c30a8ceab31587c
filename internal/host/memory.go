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

// Memory returns how many bytes of memory this process may use: the machine's, or less if its
// control groups or GOMEMLIMIT set a lower limit. It returns 0 if that is unknown.
func Memory() uint64 { return min(memory(), uint64(debug.SetMemoryLimit(-1))) }

// groupMemory returns the lowest memory limit of the control groups of this process (cgroups(7)),
// or the largest number if there is none. root is the file system of the machine.
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
		case fields[1] == "": // version 2
		case slices.Contains(kinds, "memory"):
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// A container may see its own group as the root, or the path of the machine.
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
