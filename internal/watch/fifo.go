package watch

// fifo is a queue stored in a slice. While it is short, it keeps its memory, so that pushing and
// popping an element does not allocate.
type fifo[T any] struct {
	items []T
	head  int
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) push(t T) {
	// Moving items only when half of the slice is free keeps the amortized cost of a push constant.
	if f.head > 0 && len(f.items) == cap(f.items) && f.head >= len(f.items)/2 {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, t)
}

func (f *fifo[T]) pop() (t T, ok bool) {
	if f.len() == 0 {
		return t, false
	}
	var zero T
	t, f.items[f.head] = f.items[f.head], zero
	f.head++
	if f.head == len(f.items) {
		f.head = 0
		f.items = f.items[:0]
		if cap(f.items) > 64 {
			f.items = nil // free the memory that a burst of pushes needed
		}
	}
	return t, true
}
