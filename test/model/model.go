// Package model is the protocol of one lease, said as simply as it can be said, and a search
// through everything that can happen to it. [SearchGroups] does the same for a lease that is
// renewed together with others.
//
// Three servers elect leaders and replicate a log, as Raft does. The leader times one lease; a
// holder renews it. The model has the rules of time 4 to 7 of docs/design.md: a renewal is
// acknowledged after a confirm round, a new leader gives the lease its full time unless it is
// checkpointed, a checkpointed lease is renewed through the log, and an expiry counts only if it
// is of the leader whose entry it is. It has none of the product's code: it shows that the rules
// are enough. That the product keeps them is for the simulator to show.
//
// [Search] visits every state that is reached within the bounds: every order of messages,
// elections, crashes and ticks of the clock. Clocks run at one rate; the margin for drift is not
// in the model.
package model

// Bounds of what is searched.
type Bounds struct {
	Time  byte // ticks of the clock
	Terms byte // of leaders
	Log   byte // entries, at most maxLog
	// Renewals are under way at a time, at most maxRenewals.
	Renewals int
	// Crashes is how many there are.
	Crashes byte
}

// A Fault is a rule that is left out.
type Fault byte

// The faults.
const (
	NoFault Fault = iota
	// NoConfirm acknowledges renewals without a confirm round (rule 4).
	NoConfirm
	// NoRefresh lets a new leader go by the time of the grant (rule 5).
	NoRefresh
	// NoClear acknowledges the renewal of a checkpointed lease at once (rule 6).
	NoClear
	// Forward lets a leader propose the expiry that a deposed one has decided (rule 7).
	Forward
)

const (
	servers     = 3
	maxLog      = 7
	maxRenewals = 2

	ttl    = 4 // ticks
	silent = 2 // ticks after which silence is checkpointed
)

// The kinds of entries of the log.
const (
	elected    = 1 + iota // the first of a leader
	checkpoint            // what remains of the lease
	clearing              // of the checkpoint
	expire
)

type entry struct {
	term, kind byte
	// value is what remains, of a checkpoint, and the term of who decided, of an expiry.
	value byte
}

// A server has what Raft keeps, the state that it has applied, and the timer of a leader. It
// applies at once what it knows to be committed. That a server is slow is in the model as a
// message that comes late.
type server struct {
	term   byte
	log    [maxLog]entry
	length byte
	commit byte

	gone    bool // the lease has expired
	checked bool // it is checkpointed
	until   byte // then: what remained, counted from when this server applied it

	leader bool
	timer
}

// A timer is what a leader has.
type timer struct {
	promoted bool // it has applied an entry of its own term
	expiry   byte
	renewed  byte // when the lease was, or when the server was promoted
	noted    bool // a checkpoint is proposed
	expiring bool
}

// A renewal is under way.
type renewal struct {
	sent      byte // when, from 1
	at        byte // server that has received it, from 1
	term      byte
	confirmed bool
	clearing  byte // length of the log that it waits for
}

// A world is a state of all that there is.
type world struct {
	now     byte
	valid   byte // until when the holder believes that it has the lease
	crashes byte
	server  [servers]server
	renewal [maxRenewals]renewal
}

// first is the world after the grant: server 0 leads, and everybody has its first entry.
func first() world {
	w := world{now: 1, valid: 1 + ttl}
	for i := range w.server {
		s := &w.server[i]
		s.term, s.length, s.commit = 1, 1, 1
		s.log[0] = entry{term: 1, kind: elected}
	}
	w.server[0].leader = true
	w.server[0].promote(1, NoFault)
	return w
}

func (s *server) last() entry { return s.log[s.length-1] }

func (s *server) append(e entry) {
	s.log[s.length] = e
	s.length++
}

// follow makes the server one that follows a leader of a term.
func (s *server) follow(term byte) { s.term, s.leader, s.timer = term, false, timer{} }

// promote begins to time the lease.
func (s *server) promote(now byte, f Fault) {
	s.timer = timer{promoted: true, renewed: now, expiry: now + ttl}
	switch {
	case s.checked:
		s.expiry = s.until
	case f == NoRefresh:
		s.expiry = 1 + ttl
	}
}

// apply applies all entries up to a new commit index.
func (s *server) apply(now, commit byte, f Fault) {
	for ; s.commit < commit; s.commit++ {
		switch e := s.log[s.commit]; e.kind {
		case elected:
			if s.leader && e.term == s.term {
				s.promote(now, f)
			}
		case checkpoint:
			s.checked, s.until, s.noted = true, now+e.value, false
		case clearing:
			s.checked, s.until = false, 0
		case expire:
			s.gone = s.gone || e.value == e.term
		}
	}
}

// early says whether the lease has ended while its holder is sure of it.
func (w *world) early() bool {
	for _, s := range w.server {
		if s.gone && w.valid > w.now {
			return true
		}
	}
	return false
}

// forget makes worlds equal that differ only in what is over.
func (w *world) forget() {
	if w.valid <= w.now {
		w.valid = 0
	}
	for k := range w.renewal {
		if r := &w.renewal[k]; r.sent != 0 && r.sent+ttl <= w.now {
			*r = renewal{} // it would promise nothing any more
		}
	}
	for i := range w.server {
		s := &w.server[i]
		if s.promoted && s.expiry <= w.now {
			s.expiry = 0
		}
		if s.promoted && s.renewed+silent <= w.now {
			s.renewed = 0
		}
	}
}
