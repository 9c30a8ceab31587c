// Package model is a model of the lease protocol for a single lease, with a search through all its
// executions. [SearchGroups] does the same for a lease that is renewed as part of a group.
//
// Three servers elect leaders and replicate a log, as in Raft. The leader times one lease, and a
// holder renews it. The model implements rules 4 to 7 of docs/design.md. A renewal is acknowledged
// after a confirm round. A new leader gives the lease its full TTL unless it is checkpointed. A
// checkpointed lease is renewed through the log. An expiry counts only if the leader that decided
// it also appended it. The model shares no code with the product. It shows that the rules are
// sufficient; the simulator shows that the product follows them.
//
// [Search] visits every state within the bounds: every order of messages, elections, crashes and
// clock ticks. All clocks run at the same rate, so the model has no margin for drift.
package model

// Bounds limits a search.
type Bounds struct {
	Time  byte // in clock ticks
	Terms byte // the highest term
	Log   byte // length of the log, at most maxLog
	// Renewals is the maximum number of renewals in flight, at most maxRenewals.
	Renewals int
	// Crashes is the maximum number of crashes, counting all servers.
	Crashes byte
}

// A Fault is a rule that the model omits.
type Fault byte

const (
	// NoFault omits no rule.
	NoFault Fault = iota
	// NoConfirm acknowledges renewals without a confirm round (rule 4).
	NoConfirm
	// NoRefresh makes a new leader keep the expiry of the grant (rule 5).
	NoRefresh
	// NoClear acknowledges the renewal of a checkpointed lease immediately (rule 6).
	NoClear
	// Forward lets a new leader propose an expiry decided by a deposed leader (rule 7).
	Forward
)

const (
	servers     = 3
	maxLog      = 7
	maxRenewals = 2

	ttl    = 4 // in ticks
	silent = 2 // ticks after which silence is checkpointed
)

// These are the types of log entries.
const (
	elected    = 1 + iota // a leader's first entry
	checkpoint            // the remaining time of the lease
	clearing              // ends the checkpoint
	expire
)

type entry struct {
	term, kind byte
	// value is the remaining time in a checkpoint. In an expiry, it is the term of the leader that
	// decided it.
	value byte
}

// A server consists of its Raft state, the applied state, and a leader's timer. It applies
// committed entries immediately. A slow server is modeled by late messages.
type server struct {
	term   byte
	log    [maxLog]entry
	length byte
	commit byte

	gone    bool // the lease has expired
	checked bool // the lease is checkpointed
	until   byte // if checked: when this server's countdown ends

	leader bool
	timer
}

// A timer is the lease state that only a leader has.
type timer struct {
	promoted      bool // the leader has applied an entry of its own term
	expiry        byte
	renewed       byte // when the lease was last renewed or the server was promoted
	checkpointing bool // a checkpoint has been proposed
	expiring      bool
}

// A renewal is a request in flight.
type renewal struct {
	sent      byte // when it was sent, counted from 1
	at        byte // server that received it, counted from 1
	term      byte
	confirmed bool
	clearing  byte // log length to apply before the renewal is acknowledged
}

// A world is one state of the entire system.
type world struct {
	now     byte
	valid   byte // when the holder stops
	crashes byte
	server  [servers]server
	renewal [maxRenewals]renewal
}

// first returns the world after the grant: server 0 leads, and all servers have its first entry.
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

// follow makes the server follow the leader of a term.
func (s *server) follow(term byte) { s.term, s.leader, s.timer = term, false, timer{} }

// promote starts timing the lease.
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
			s.checked, s.until, s.checkpointing = true, now+e.value, false
		case clearing:
			s.checked, s.until = false, 0
		case expire:
			s.gone = s.gone || e.value == e.term
		}
	}
}

// endedEarly reports whether the lease has ended while its holder was still valid.
func (w *world) endedEarly() bool {
	for _, s := range w.server {
		if s.gone && w.valid > w.now {
			return true
		}
	}
	return false
}

// normalize clears what is no longer relevant, so that equivalent worlds compare equal.
func (w *world) normalize() {
	if w.valid <= w.now {
		w.valid = 0
	}
	for k := range w.renewal {
		if r := &w.renewal[k]; r.sent != 0 && r.sent+ttl <= w.now {
			*r = renewal{} // it can no longer extend the validity
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
