package history

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"time"
)

// History is what clients did and were told, for the checkers. Its methods may be called from any
// goroutine.
type History struct {
	start  time.Time
	length time.Duration // how long the run has lasted, once it is over

	mu         sync.Mutex // guards what follows
	clock      int64      // counts calls and returns, for many happen at one instant
	ops        []*Op
	events     map[int64]string // what all watches together were told of each revision
	watches    []*Watch
	acks       map[int64]string // what an acknowledged write must have made of its revision
	held       map[string][]*Belief
	tokens     map[string]uint64
	keys       map[string]*Belief // of leases, by the key attached
	violations []Violation
	counts     map[string]int
}

// Program is who did something: it can die, and believes nothing then.
type Program interface {
	Name() string
	IsDead() bool
}

// Violation is a promise that was broken.
type Violation struct {
	At   time.Duration
	ID   string // in docs/design.md
	What string
}

// String tells a violation in one line.
func (v Violation) String() string { return fmt.Sprintf("%v %s: %s", v.At, v.ID, v.What) }

// New returns the history of a run that begins now.
func New() *History {
	return &History{
		start: time.Now(), events: make(map[int64]string), acks: make(map[int64]string),
		held: make(map[string][]*Belief), tokens: make(map[string]uint64),
		keys: make(map[string]*Belief), counts: make(map[string]int),
	}
}

// Now is how long the run has lasted.
func (h *History) Now() time.Duration {
	if h.length != 0 {
		return h.length
	}
	return time.Since(h.start)
}

// End notes that the run is over.
func (h *History) End() { h.length = h.Now() }

// Violate notes that a promise was broken.
func (h *History) Violate(id, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violateLocked(id, format, args...)
}

func (h *History) violateLocked(id, format string, args ...any) {
	h.violations = append(h.violations, Violation{h.Now(), id, fmt.Sprintf(format, args...)})
}

// Count counts something that happened.
func (h *History) Count(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[what]++
}

// Counts returns how often what happened.
func (h *History) Counts() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.counts)
}

// Stamp returns the place of this moment among the calls and returns of operations.
func (h *History) Stamp() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	return h.clock
}

// Ops returns all operations of a run that is over.
func (h *History) Ops() []*Op { return h.ops }

// Watches returns what each watch was told in a run that is over.
func (h *History) Watches() []*Watch { return h.watches }

// Kind says what a client asked of a register.
type Kind uint8

// The kinds. A Swap is to a value, if the register has another.
const (
	Get Kind = iota
	Put
	Swap
	Delete
)

// Never is the return of what was not answered.
const Never = math.MaxInt64

// Op is one operation on a register, which is a key. A value is written once in a run; the
// empty one is that of a key that is missing.
type Op struct {
	By, Key  string
	Kind     Kind
	Value    string // written
	Want     string // by a swap
	Got      string // read; by a swap that did nothing, too
	Swapped  bool
	Revision int64 // of the store after a write that was done, 0 if it is not told

	done       bool  // it was answered; else it may have been done
	call, ret  int64 // turns
	start, end time.Duration
}

// String tells an operation in one line.
func (o *Op) String() string {
	s := fmt.Sprintf("%v-%v %s %s ", o.start, o.end, o.By, o.Key)
	switch o.Kind {
	case Get:
		s += fmt.Sprintf("get: %q", o.Got)
	case Put:
		s += fmt.Sprintf("put %q", o.Value)
	case Swap:
		s += fmt.Sprintf("swap %q to %q: %t %q", o.Want, o.Value, o.Swapped, o.Got)
	case Delete:
		s += "delete"
	}
	if !o.done {
		s += ", no answer"
	}
	return s
}

// Call notes that an operation begins.
func (h *History) Call(o *Op) *Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	o.call, o.start, o.ret, o.end = h.clock, h.Now(), Never, -1
	h.ops = append(h.ops, o)
	return o
}

// Outcome is what is known of an operation.
type Outcome uint8

// The outcomes. One that has Failed did nothing and never will.
const (
	Unknown Outcome = iota
	Done
	Failed
)

// Done reports whether the operation was answered.
func (o *Op) Done() bool { return o.done }

// CallStamp returns the turn at which the operation began.
func (o *Op) CallStamp() int64 { return o.call }

// Return notes how an operation ended.
func (h *History) Return(o *Op, f Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	o.end = h.Now()
	switch {
	case f == Done:
		o.ret, o.done = h.clock, true
		h.counts["done"]++
	case f == Failed, o.Kind == Get:
		o.Key = "" // it is as if it had not been
	default:
		h.counts["unknown"]++
	}
	if o.done && o.Revision != 0 && (o.Kind == Put || o.Kind == Swap && o.Swapped) {
		h.acks[o.Revision] = render(false, o.Key, o.Value)
	}
}

// Belief is that a program holds something, for as long as it is sure.
type Belief struct {
	by       Program
	token    uint64
	others   int          // how many may hold the same
	err      func() error // nil while the program is sure
	revision int64        // the revision that put the key, if it is known

	mu       sync.Mutex
	released bool
}

// Release notes that the program has given it up.
func (b *Belief) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.released = true
}

// sure reports whether the program is sure now that it holds it.
func (b *Belief) sure() bool {
	b.mu.Lock()
	released := b.released
	b.mu.Unlock()
	return !released && !b.by.IsDead() && b.err() == nil
}

// Hold notes that a program has come to hold something, of which there is one. It is sure of that
// as long as err returns nil. The token may be 0 if there is none.
func (h *History) Hold(what string, by Program, token uint64, err func() error) *Belief {
	return h.begin(what, &Belief{by: by, token: token, err: err})
}

// Share notes that a program has come to hold something that so many others may hold as well.
func (h *History) Share(what string, by Program, others int, err func() error) *Belief {
	return h.begin(what, &Belief{by: by, others: others, err: err})
}

// begin is L4 and L5.
func (h *History) begin(what string, b *Belief) *Belief {
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
				what, o.by.Name(), o.token, b.by.Name(), b.token)
		}
	}
	if sure && b.token != 0 && b.token <= h.tokens[what] {
		h.violateLocked("L5", "%s has come to %s with token %d, after %d",
			what, b.by.Name(), b.token, h.tokens[what])
	}
	h.tokens[what] = max(h.tokens[what], b.token)
	h.held[what] = append(kept, b)
	return b
}

// Attach notes that a key is attached to a lease, which its program believes to have as long as err
// returns nil. The key was put at a revision, if that is known.
func (h *History) Attach(key string, by Program, revision int64, err func() error) *Belief {
	b := &Belief{by: by, err: err, revision: revision}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts["leases"]++
	h.keys[key] = b
	return b
}

// Deleted notes that a key has gone at a revision, with its lease, and why. It is L1.
func (h *History) Deleted(key string, why any, revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[fmt.Sprint("lease gone: ", why)]++
	b := h.keys[key]
	if b != nil && revision <= b.revision {
		return // with an earlier lease
	}
	if b != nil && b.sure() {
		h.violateLocked("L1", "%s has gone (%v), and %s is sure of its lease", key, why, b.by.Name())
	}
	delete(h.keys, key)
}

// Watch is what one watch was told.
type Watch struct {
	By          string
	Changes     map[int64]string // by revision
	first, last int64            // all of these revisions
}

// NewWatch returns that of a watch which has been told nothing yet.
func NewWatch(by string) *Watch { return &Watch{By: by, Changes: make(map[int64]string)} }

// Change is what a watch was told of a key.
type Change struct {
	Key, Value string
	Delete     bool
	Revision   int64
}

// Observe notes what a watch was told: changes, which are all up to a revision.
func (h *History) Observe(v *Watch, revision int64, changes []Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v.last == 0 { // it began somewhere before
		h.watches = append(h.watches, v)
		v.last, v.first = revision, revision+1
		if len(changes) > 0 {
			v.last = changes[0].Revision - 1
			v.first = v.last + 1
		}
	}
	for _, c := range changes {
		if c.Revision <= v.last || c.Revision > revision {
			h.violateLocked("W1", "the watch of %s was told of revision %d after %d, with %d",
				v.By, c.Revision, v.last, revision)
		}
		v.Changes[c.Revision] += render(c.Delete, c.Key, c.Value)
		h.counts["events"]++
	}
	v.last = max(v.last, revision)
}

// render is a change as a text.
func render(gone bool, key, value string) string {
	if gone {
		return "-" + key + ";"
	}
	return "+" + key + "=" + value + ";"
}
