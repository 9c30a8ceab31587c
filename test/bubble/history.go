package bubble

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// history is what clients did and were told, for the checkers.
type history struct {
	begun time.Time
	over  time.Duration // how long the run has lasted, once it is over

	mu     sync.Mutex // guards what follows
	turn   int64      // counts calls and returns, for many happen at one instant
	ops    []*op
	events map[int64]string // what all watches together were told of each revision
	views  []*view
	acks   map[int64]string // what an acknowledged write must have made of its revision
	held   map[string][]*belief
	tokens map[string]uint64
	keys   map[string]*belief // of leases, by the key attached
	taken  map[string]taken   // by tenant
	pushed map[string]bool    // items: true once they were worked on
	broken []violation
	counts map[string]int
}

// violation is a promise that was broken.
type violation struct {
	at   time.Duration
	id   string // in docs/design.md
	what string
}

// String tells a violation in one line.
func (v violation) String() string { return fmt.Sprintf("%v %s: %s", v.at, v.id, v.what) }

func newHistory() *history {
	return &history{
		begun: time.Now(), events: make(map[int64]string), acks: make(map[int64]string),
		held: make(map[string][]*belief), tokens: make(map[string]uint64),
		keys: make(map[string]*belief), pushed: make(map[string]bool), taken: make(map[string]taken),
		counts: make(map[string]int),
	}
}

// now is how long the run has lasted.
func (h *history) now() time.Duration {
	if h.over != 0 {
		return h.over
	}
	return time.Since(h.begun)
}

func (h *history) violate(id, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violateLocked(id, format, args...)
}

func (h *history) violateLocked(id, format string, args ...any) {
	h.broken = append(h.broken, violation{h.now(), id, fmt.Sprintf(format, args...)})
}

func (h *history) count(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[what]++
}

// opKind says what a client asked of a register.
type opKind uint8

const (
	opGet opKind = iota
	opPut
	opSwap // to a value, if the register has another
	opDelete
)

// never is the return of what was not answered.
const never = math.MaxInt64

// op is one operation on a register, which is a key. A value is written once in a run; the
// empty one is that of a key that is missing.
type op struct {
	by, key    string
	kind       opKind
	value      string // written
	want       string // by a swap
	got        string // read; by a swap that did nothing, too
	swapped    bool
	revision   int64 // of the store after a write that was done, 0 if it is not told
	done       bool  // it was answered; else it may have been done
	call, back int64 // turns
	start, end time.Duration
}

// String tells an operation in one line.
func (o *op) String() string {
	s := fmt.Sprintf("%v-%v %s %s ", o.start, o.end, o.by, o.key)
	switch o.kind {
	case opGet:
		s += fmt.Sprintf("get: %q", o.got)
	case opPut:
		s += fmt.Sprintf("put %q", o.value)
	case opSwap:
		s += fmt.Sprintf("swap %q to %q: %t %q", o.want, o.value, o.swapped, o.got)
	case opDelete:
		s += "delete"
	}
	if !o.done {
		s += ", no answer"
	}
	return s
}

// call notes that an operation begins.
func (h *history) call(o *op) *op {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn++
	o.call, o.start, o.back, o.end = h.turn, h.now(), never, -1
	h.ops = append(h.ops, o)
	return o
}

// outcome is what is known of an operation.
type outcome uint8

const (
	unknown outcome = iota
	done
	failed // it did nothing and never will
)

// back notes how an operation ended.
func (h *history) back(o *op, f outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn++
	o.end = h.now()
	switch {
	case f == done:
		o.back, o.done = h.turn, true
		h.counts["done"]++
	case f == failed, o.kind == opGet:
		o.key = "" // it is as if it had not been
	default:
		h.counts["unknown"]++
	}
	if o.done && o.revision != 0 && (o.kind == opPut || o.kind == opSwap && o.swapped) {
		h.acks[o.revision] = told(false, o.key, o.value)
	}
}

// belief is that a program holds something, for as long as valid says so.
type belief struct {
	by    *process
	token uint64
	// others is how many may hold the same.
	others int
	err    func() error // nil while the program is sure
	since  int64        // the revision that put the key, if it is known

	mu   sync.Mutex
	over bool
}

// release notes that the program has given it up.
func (b *belief) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}

// sure reports whether the program is sure now that it holds it.
func (b *belief) sure() bool {
	b.mu.Lock()
	over := b.over
	b.mu.Unlock()
	return !over && !b.by.on.IsDead() && b.err() == nil
}

// hold notes that a program has come to hold something, of which there is one.
func (h *history) hold(what string, by *process, token uint64, err func() error) *belief {
	return h.come(what, &belief{by: by, token: token, err: err})
}

// share notes that a program has come to hold something that so many others may hold as well.
func (h *history) share(what string, by *process, others int, err func() error) *belief {
	return h.come(what, &belief{by: by, others: others, err: err})
}

func (h *history) come(what string, b *belief) *belief {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts["held"]++
	kept := h.held[what][:0]
	for _, o := range h.held[what] {
		if o.sure() {
			kept = append(kept, o)
		}
	}
	sure := b.sure()
	for _, o := range kept {
		if sure && len(kept) > min(b.others, o.others) {
			h.violateLocked("L4", "%s is held by %s (token %d) and by %s (token %d)",
				what, o.by.on.Name, o.token, b.by.on.Name, b.token)
		}
	}
	if sure && b.token != 0 && b.token <= h.tokens[what] {
		h.violateLocked("L5", "%s has come to %s with token %d, after %d",
			what, b.by.on.Name, b.token, h.tokens[what])
	}
	h.tokens[what] = max(h.tokens[what], b.token)
	h.held[what] = append(kept, b)
	return b
}

// view is what one watch was told.
type view struct {
	by          string
	first, last int64 // all of these revisions
	told        map[int64]string
}

// told is a change as a text.
func told(gone bool, key, value string) string {
	if gone {
		return "-" + key + ";"
	}
	return "+" + key + "=" + value + ";"
}
