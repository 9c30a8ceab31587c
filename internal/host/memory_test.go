package host

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

// TestGroupMemory checks that a process may use as much as the strictest of its control groups
// allows, whether they are version 1 or 2.
func TestGroupMemory(t *testing.T) {
	none := uint64(math.MaxUint64)
	for name, x := range map[string]struct {
		files map[string]string
		want  uint64
	}{
		"no groups": {nil, none},
		"unlimited": {map[string]string{
			"proc/self/cgroup":           "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "max\n",
		}, none},
		"its own group": {map[string]string{
			"proc/self/cgroup":             "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "1000\n", "sys/fs/cgroup/a/memory.max": "2000\n",
		}, 1000},
		"a group above it": {map[string]string{
			"proc/self/cgroup":             "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "2000\n",
		}, 2000},
		"a container": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "3000\n",
		}, 3000},
		"a container that sees the path of the machine": {map[string]string{
			"proc/self/cgroup":                           "3:cpu:/a\n2:hugetlb,memory:/docker/x\n0::/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "4000\n",
			"sys/fs/cgroup/cpu/a/memory.limit_in_bytes":  "1\n",
		}, 4000},
	} {
		root := fstest.MapFS{}
		for file, text := range x.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := groupMemory(root); got != x.want {
			t.Errorf("%s: %d bytes, want %d", name, got, x.want)
		}
	}
}

// TestMemoryLimit checks that GOMEMLIMIT counts, too.
func TestMemoryLimit(t *testing.T) {
	if memory() == 0 {
		t.Skip("the memory of this system is not known")
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30))
	if n := Memory(); n == 0 || n > 1<<30 {
		t.Errorf("%d bytes, with a limit of %d", n, 1<<30)
	}
}
