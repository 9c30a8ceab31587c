package history

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"time"
)

// History records what clients did and observed. Its methods can be called from any goroutine.
type History struct {
	start  time.Time
	length time.Duration // set when the run ends

	mu         sync.Mutex // guards the following fields
	clock      int64      // orders calls and returns that happen at the same instant
	ops        []*Op
	events     map[int64]string // events from all watches, keyed by revision
	watches    []*Watch
	acks       map[int64]string // events that acknowledged writes must cause, keyed by revision
	held       map[string][]*Belief
	tokens     map[string]uint64
	keys       map[string]*Belief // leases, keyed by attached key
	violations []Violation
	counts     map[string]int
}

// Program performs operations. A dead program holds nothing.
type Program interface {
	Name() string
	IsDead() bool
}

// Violation is a broken promise.
type Violation struct {
	At   time.Duration
	ID   string // name of the promise in docs/design.md
	What string
}

// String formats the violation as one line.
func (v Violation) String() string { return fmt.Sprintf("%v %s: %s", v.At, v.ID, v.What) }

// New returns the history of a run that starts now.
func New() *History {
	return &History{
		start: time.Now(), events: make(map[int64]string), acks: make(map[int64]string),
		held: make(map[string][]*Belief), tokens: make(map[string]uint64),
		keys: make(map[string]*Belief), counts: make(map[string]int),
	}
}

// Now returns how long the run has lasted.
func (h *History) Now() time.Duration {
	if h.length != 0 {
		return h.length
	}
	return time.Since(h.start)
}

// End marks the end of the run.
func (h *History) End() { h.length = h.Now() }

// Violate records that a promise was broken.
func (h *History) Violate(id, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violateLocked(id, format, args...)
}

func (h *History) violateLocked(id, format string, args ...any) {
	h.violations = append(h.violations, Violation{h.Now(), id, fmt.Sprintf(format, args...)})
}

// Count increments the named counter.
func (h *History) Count(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[what]++
}

// Counts returns the values of all counters.
func (h *History) Counts() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.counts)
}

// Stamp returns a logical timestamp that orders this moment relative to calls and returns.
func (h *History) Stamp() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	return h.clock
}

// Ops returns all operations. It must be called after the run has ended.
func (h *History) Ops() []*Op { return h.ops }

// Watches returns all watches. It must be called after the run has ended.
func (h *History) Watches() []*Watch { return h.watches }

// Kind is a type of operation.
type Kind uint8

// These are the types of operations. A Swap sets the register to Value if its value is Want.
const (
	Get Kind = iota
	Put
	Swap
	Delete
)

// Never is the return time of an unanswered operation.
const Never = math.MaxInt64

// Op is an operation on a register, which is a key. Each value is written only once per run. The
// empty value represents a missing key.
type Op struct {
	By, Key  string
	Kind     Kind
	Value    string // value written
	Want     string // value expected by a swap
	Got      string // value read, or found by a failed swap
	Swapped  bool
	Revision int64 // revision of a write, 0 if unknown

	done       bool  // answered; if not, the operation may or may not have happened
	call, ret  int64 // timestamps
	start, end time.Duration
}

// String formats the operation as one line.
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

// Call records the start of an operation.
func (h *History) Call(o *Op) *Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	o.call, o.start, o.ret, o.end = h.clock, h.Now(), Never, -1
	h.ops = append(h.ops, o)
	return o
}

// Outcome is what a client knows about the result of an operation.
type Outcome uint8

// These are the outcomes. A Failed operation never has an effect.
const (
	Unknown Outcome = iota
	Done
	Failed
)

// Done reports whether the operation was answered.
func (o *Op) Done() bool { return o.done }

// CallStamp returns the timestamp of the operation's call.
func (o *Op) CallStamp() int64 { return o.call }

// Return records the end of an operation.
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
		o.Key = "" // excludes the operation from the checks
	default:
		h.counts["unknown"]++
	}
	if o.done && o.Revision != 0 && (o.Kind == Put || o.Kind == Swap && o.Swapped) {
		h.acks[o.Revision] = render(false, o.Key, o.Value)
	}
}

// Belief is a program's belief that it holds something.
type Belief struct {
	by       Program
	token    uint64
	others   int          // number of other programs that may hold the same thing
	err      func() error // returns nil while the program believes that it is a holder
	revision int64        // revision at which the key was put, 0 if unknown

	mu       sync.Mutex
	released bool
}

// Release records that the program has released what it held.
func (b *Belief) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.released = true
}

// sure reports whether the program is alive and still believes that it is a holder.
func (b *Belief) sure() bool {
	b.mu.Lock()
	released := b.released
	b.mu.Unlock()
	return !released && !b.by.IsDead() && b.err() == nil
}

// Hold records that a program has become the only holder of something. It remains the holder while
// err returns nil. A token of 0 means that there is no token.
func (h *History) Hold(what string, by Program, token uint64, err func() error) *Belief {
	return h.begin(what, &Belief{by: by, token: token, err: err})
}

// Share is like Hold, but the given number of other programs may hold the same thing at the same
// time.
func (h *History) Share(what string, by Program, others int, err func() error) *Belief {
	return h.begin(what, &Belief{by: by, others: others, err: err})
}

// begin records a belief and checks L4 and L5.
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
		h.violateLocked("L5", "%s was granted to %s with token %d, after %d",
			what, b.by.Name(), b.token, h.tokens[what])
	}
	h.tokens[what] = max(h.tokens[what], b.token)
	h.held[what] = append(kept, b)
	return b
}

// Attach records that a key was attached to a lease. Its program considers the lease valid while
// err returns nil. The revision is the one at which the key was put, or 0 if unknown.
func (h *History) Attach(key string, by Program, revision int64, err func() error) *Belief {
	b := &Belief{by: by, err: err, revision: revision}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts["leases"]++
	h.keys[key] = b
	return b
}

// Deleted records that a key was deleted together with its lease, along with the revision and the
// reason. It checks L1.
func (h *History) Deleted(key string, why any, revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[fmt.Sprint("lease gone: ", why)]++
	b := h.keys[key]
	if b != nil && revision <= b.revision {
		return // the deletion belongs to an earlier lease
	}
	if b != nil && b.sure() {
		h.violateLocked("L1", "%s was deleted (%v), but %s's lease is valid", key, why, b.by.Name())
	}
	delete(h.keys, key)
}

// Watch records what a watch delivered.
type Watch struct {
	By          string
	Changes     map[int64]string // keyed by revision
	first, last int64            // range of revisions covered
}

// NewWatch returns an empty record.
func NewWatch(by string) *Watch { return &Watch{By: by, Changes: make(map[int64]string)} }

// Change is a change of a key as delivered by a watch.
type Change struct {
	Key, Value string
	Delete     bool
	Revision   int64
}

// Observe records the changes delivered by a watch. They must include every change since the
// previous delivery, up to the given revision.
func (h *History) Observe(v *Watch, revision int64, changes []Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v.last == 0 { // this is the first delivery
		h.watches = append(h.watches, v)
		v.last, v.first = revision, revision+1
		if len(changes) > 0 {
			v.last = changes[0].Revision - 1
			v.first = v.last + 1
		}
	}
	for _, c := range changes {
		if c.Revision <= v.last || c.Revision > revision {
			h.violateLocked("W1", "%s's watch got revision %d after %d, with %d",
				v.By, c.Revision, v.last, revision)
		}
		v.Changes[c.Revision] += render(c.Delete, c.Key, c.Value)
		h.counts["events"]++
	}
	v.last = max(v.last, revision)
}

// render formats a change.
func render(gone bool, key, value string) string {
	if gone {
		return "-" + key + ";"
	}
	return "+" + key + "=" + value + ";"
}
