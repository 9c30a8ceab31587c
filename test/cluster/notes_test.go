package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// A note is what an agent writes down when it happens, a line of JSON in a file that outlives
// it. All instants are of machineTime.
type note struct {
	Who  string        `json:"who"` // the agent and its incarnation
	Verb string        `json:"verb"`
	At   time.Duration `json:"at"`

	// What it is about: a lock, an ID, an item; of a watch, which one.
	What string `json:"what,omitzero"`
	// Span numbers what is held, within an incarnation.
	Span int64 `json:"span,omitzero"`
	// Mode is how it is held, or how it ended.
	Mode string `json:"mode,omitzero"`
	// Token is the fencing token of what is held.
	Token uint64 `json:"token,omitzero"`
	// Mark tells observers which agent has it: a revision, a token, a lease.
	Mark int64 `json:"mark,omitzero"`
	// From is when it was begun, if At is when it was over; Till until when it holds.
	From time.Duration `json:"from,omitzero"`
	Till time.Duration `json:"till,omitzero"`

	Text     string        `json:"text,omitzero"`
	Lease    int64         `json:"lease,omitzero"`
	Tries    int64         `json:"tries,omitzero"`
	Delay    time.Duration `json:"delay,omitzero"`
	Revision int64         `json:"revision,omitzero"`
}

// What a note may say.
const (
	noteHold    = "hold"    // Span of What begins
	noteStill   = "still"   // Span is valid Till
	noteEnd     = "end"     // Span is to end, in this Mode
	noteSight   = "sight"   // What was Mark's at some moment between From and At
	notePush    = "push"    // Text is to be pushed, with Delay
	notePushed  = "pushed"  // Text is in the queue
	noteClaim   = "claim"   // item What is claimed under Lease
	noteNack    = "nack"    // the claim under Lease is to be given back, with Delay
	noteLeader  = "leader"  // observer What saw Mark lead, as of Revision
	noteMember  = "member"  // group watch What told Mode of Mark
	noteLeaving = "leaving" // Lease is to leave its group
	noteError   = "error"   // something failed, as it may
	noteWrong   = "wrong"   // something is as it may not be
	noteIdle    = "idle"    // the agent has given back all it had
)

// noteBook is the file of an agent. Its methods may be called from any goroutine.
type noteBook struct {
	who string
	mu  sync.Mutex // guards what follows
	out *os.File
}

func openNotes(path, who string) (*noteBook, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &noteBook{who: who, out: f}, nil
}

// write writes a note in one piece, or none of it: who is killed leaves no half of one. Without
// an instant it is of now.
func (b *noteBook) write(n note) {
	n.Who = b.who
	if n.At == 0 {
		n.At = machineTime()
	}
	line, err := json.Marshal(n)
	if err == nil {
		b.mu.Lock()
		_, err = b.out.Write(append(line, '\n'))
		b.mu.Unlock()
	}
	if err != nil {
		panic(err)
	}
}

// A noteReader reads the file of an agent, while that is written.
type noteReader struct {
	path string
	read int64 // bytes that are in list
	list []note
}

// all returns all notes so far. One that is being written may be there in part.
func (r *noteReader) all() ([]note, error) {
	f, err := os.Open(r.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	at := r.read
	defer func() { r.read = at }()
	d := json.NewDecoder(io.NewSectionReader(f, r.read, 1<<62-r.read))
	for {
		var n note
		if err := d.Decode(&n); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return r.list, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: after %d notes: %w", r.path, len(r.list), err)
		}
		r.list = append(r.list, n)
		at = r.read + d.InputOffset()
	}
}

// stay is a time during which an agent had something, as it knows itself: until its lease is
// not valid, if it does not hear from the cluster again, or until it began to give it up.
type stay struct {
	who, what, mode string
	token           uint64
	mark            int64
	from, till      time.Duration
	ended           string // how it was given up, empty if it was not
}

func (s *stay) String() string {
	return fmt.Sprintf("%s has %s %s by token %d from %v till %v (%s)",
		s.who, s.what, s.mode, s.token, s.from, s.till, s.ended)
}

// stays puts the notes of what was held together, in the order in which it began. What nobody
// has seen to be valid was not held.
func stays(notes []note) []*stay {
	type key struct {
		who  string
		span int64
	}
	all := make(map[key]*stay)
	var order []*stay
	for _, n := range notes {
		k := key{n.Who, n.Span}
		switch n.Verb {
		case noteHold:
			all[k] = &stay{
				who: n.Who, what: n.What, mode: n.Mode, token: n.Token, mark: n.Mark,
				from: n.At, till: n.At,
			}
			order = append(order, all[k])
		case noteStill:
			if s := all[k]; s.ended == "" {
				s.till = max(s.till, n.Till)
			}
		case noteEnd:
			if s := all[k]; s.ended == "" {
				s.till, s.ended = min(s.till, n.At), n.Mode
			}
		}
	}
	var out []*stay
	for _, s := range order {
		if s.from < s.till {
			out = append(out, s)
		}
	}
	return out
}

// A note that is there in part is read when it is whole.
func TestNoteReaderPart(t *testing.T) {
	r := &noteReader{path: filepath.Join(t.TempDir(), "notes")}
	for text, want := range map[string]int{`{}` + "\n" + `{"at":`: 1, `{}` + "\n" + `{}`: 2} {
		if err := os.WriteFile(r.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r.read, r.list = 0, nil
		if list, err := r.all(); err != nil || len(list) != want {
			t.Errorf("%q: %d notes, %v", text, len(list), err)
		}
	}
}
