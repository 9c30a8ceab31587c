package fsm

import (
	"fmt"
	"sync"

	"leasehold.dev/lease"
)

// restoreChunks restores a snapshot twice, once with part of the work done in parallel, and checks
// that the results agree.
func restoreChunks(c Config, chunks ...[]byte) (*Machine, error) {
	m, err := Restore(c, source(chunks...))
	c.Async = func(f func()) func() {
		var wg sync.WaitGroup
		wg.Go(f)
		return wg.Wait
	}
	beside, why := Restore(c, source(chunks...))
	if a, b := madeOf(m, err), madeOf(beside, why); a != b {
		panic(fmt.Sprintf("restored: %s; with a part of it beside the rest: %s", a, b))
	}
	return m, err
}

// madeOf describes a state by its hash and any inconsistent attachments. For an error it returns
// the text.
func madeOf(m *Machine, err error) string {
	if err != nil {
		return err.Error()
	}
	hash, err := m.Image().Hash()
	s := fmt.Sprintf("hash %08x, %v", hash, err)
	for kv := range m.store.View().Ascend("\x00", "\x00", 0) {
		if id := m.lessor.LeaseOf(kv.Key); id != lease.ID(kv.Lease) {
			s += fmt.Sprintf(", %q is attached to %d", kv.Key, id)
		}
	}
	return s
}
