package mvcc

import "iter"

// Writer is a named account that versions of keys are charged to: see Store.Writer. It tracks their
// size, including history, as Store.Size does. A tombstone is charged to the writer of the version
// that it deletes. The fixed cost of a key, from creation to deletion, is charged to the writer of
// its newest version. So the sizes of all writers, plus the size of data without a writer, add up
// to Store.Size.
//
// The name never changes. All other fields belong to the goroutine that owns the store.
type Writer struct {
	name string
	size int64
	ends ends
	keys int64 // number of live keys that are on a lease and were last written by it
}

// Name returns the name of the writer.
func (w *Writer) Name() string { return w.name }

// Writer returns the writer with the given name, for use in puts. The store drops a writer at the
// first compaction that leaves none of its data.
func (s *Store) Writer(name string) *Writer {
	w := s.writers[name]
	if w == nil {
		w = &Writer{name: name}
		s.writers[name] = w
	}
	return w
}

// Written is the data in a store that is charged to a writer.
type Written struct {
	Name  string
	Bytes int64 // see Writer
	Keys  int64 // number of live keys that are on a lease and were last written by it
}

// WrittenBy returns the data that is charged to the writer with the given name.
func (s *Store) WrittenBy(name string) Written {
	if w := s.writers[name]; w != nil {
		return s.written(w)
	}
	return Written{Name: name}
}

// Writers yields the writers that have any data, in no particular order.
func (s *Store) Writers() iter.Seq[Written] {
	return func(yield func(Written) bool) {
		for _, w := range s.writers {
			if x := s.written(w); x != (Written{Name: w.name}) && !yield(x) {
				return
			}
		}
	}
}

func (s *Store) written(w *Writer) Written {
	out := Written{Name: w.name, Bytes: w.size, Keys: w.keys}
	if s.compacted == s.revision {
		out.Bytes -= w.ends.left() // as in Size
	}
	return out
}

// grow adds to the size of the writer. Bytes without a writer are counted only by the store.
func (w *Writer) grow(bytes int64) {
	if w != nil {
		w.size += bytes
	}
}

// end records bytes that are removed by a compaction at a revision.
func (w *Writer) end(revision, bytes int64) {
	if w != nil {
		w.ends.add(revision, bytes)
	}
}

// holds adds to the number of keys on leases.
func (w *Writer) holds(n int64) {
	if w != nil {
		w.keys += n
	}
}

// compactWriters subtracts from each writer's size what the compaction has removed.
func (s *Store) compactWriters() {
	for name, w := range s.writers {
		if w.size -= w.ends.take(s.compacted); w.size == 0 {
			delete(s.writers, name)
		}
	}
}
