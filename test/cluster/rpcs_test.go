package cluster

import (
	"testing"
)

// check fails the test if ok is false.
func check(t *testing.T, ok bool, what string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(what, args...)
	}
}

// sameHash compares the stores of all members at the same revision (S3).
func sameHash(t *testing.T, c *cluster) {
	t.Helper()
	revision := c.revision()
	var first uint32
	for i, m := range c.members {
		m.serves() // now it has applied the revision
		r, err := m.admin.HashKV(soon(t), m.url, revision)
		if err != nil {
			t.Errorf("hash of %s: %v", m.name, err)
			continue
		}
		if i == 0 {
			first = r.Hash
		}
		check(t, r.Hash == first, "%s has hash %x at revision %d, %s has %x (S3)",
			m.name, r.Hash, revision, c.members[0].name, first)
	}
}
