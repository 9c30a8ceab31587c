package replica

import (
	"slices"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// queue holds the commands that a leader has admitted but not yet proposed to Raft, in log order.
// It makes entries from them.
type queue struct {
	machine  *fsm.Machine
	maxBatch int // Config.MaxBatch
	waiting  []*Proposal
	delay    commitDelay
	number   uint64 // number of the last command added, counted from 1
	// versioning is true while a change of the cluster version is in the log but not yet applied.
	// Until it is applied, no command may follow it, because the version of the command's entry is
	// unknown.
	versioning bool
	// version set by a waiting or unapplied change; 0 if there is none
	ceiling byte
	spare   memory
}

// memory is reused for the next entry.
type memory struct {
	waiting []*Proposal // an empty slice
	entry   []byte      // nil while an entry is being proposed
	body    []byte      // nil while a part is being encoded
}

// add appends a command unless the cluster version at that point lacks it.
func (q *queue) add(p *Proposal) error {
	if !has(q.version(), p.Command) {
		return ErrVersion
	}
	if set, ok := fsm.Inner(p.Command).(*fsm.SetVersion); ok {
		if q.ceiling == 0 {
			q.ceiling = set.Version
		}
		q.ceiling = min(q.ceiling, set.Version)
	}
	q.number++
	q.waiting = append(q.waiting, p)
	return nil
}

// version returns the cluster version that will be in effect after all waiting commands, including
// a change in flight that lowers the version.
func (q *queue) version() byte {
	v := q.machine.Version().Number
	if q.ceiling != 0 {
		v = min(v, q.ceiling)
	}
	return v
}

// first returns the number of the first waiting command. If none is waiting, it returns the number
// of the next command.
func (q *queue) first() uint64 { return q.number - uint64(len(q.waiting)) + 1 }

// due reports whether to make the next entries now. appending is the number of appends that are
// being synced. Commands that arrive during a sync wait until it is done, so that they all share
// the next entry and the next sync (group commit).
func (q *queue) due(appending int, now lease.Instant) bool {
	return len(q.waiting) > 0 && (appending == 0 || len(q.waiting) >= groupMax) &&
		!q.delayed(appending, now) && !q.versioning
}

// delayed reports whether commands are waiting only because of the commit delay.
func (q *queue) delayed(appending int, now lease.Instant) bool {
	return len(q.waiting) > 0 && appending == 0 && q.delay.holds(len(q.waiting), now)
}

// load tracks how long it takes to apply the commands of an entry under construction: see fsm.Cost.
type load struct {
	machine   *fsm.Machine
	unapplied int64 // cost of the commands in the log that are not applied
	time      int64
}

// takes adds a command and returns true if a step still has time for it after the preceding
// commands. The first command is always accepted.
func (l *load) takes(p *Proposal) bool {
	t := l.machine.Time(p.Command, l.unapplied+l.time)
	if l.time > 0 && l.time+t > stepTime {
		return false
	}
	l.time += t
	return true
}

// entry returns an entry with the first waiting commands. It contains at most groupMax commands,
// and no more of them than one step has time to apply. It is empty if the first command is too
// large. unapplied is the cost of the commands in the log that have not been applied. The data is
// valid until the next call, because Raft copies what is proposed.
func (q *queue) entry(unapplied int64) (data []byte, of batch) {
	data = fsm.AppendEntry(q.spare.entry[:0], q.machine.Version().Number)
	of.number = q.first()
	n, most := 0, min(len(q.waiting), groupMax)
	l := load{machine: q.machine, unapplied: unapplied}
	for ok := true; ok && n < most && len(data) < q.maxBatch && !q.versioning; {
		p := q.waiting[n]
		if p.origin.Member == 0 {
			if ok = l.takes(p); !ok {
				break
			}
			if data, ok = appendCommand(data, p.Command); ok {
				q.versioning = p.setsVersion()
				n++
			}
			continue
		}
		body, run := q.run(q.waiting[n:most], q.maxBatch-len(data), &l)
		if ok = run > 0; ok {
			data = append(fsm.AppendGroup(data, p.origin, run), body...)
			q.versioning = slices.ContainsFunc(q.waiting[n:n+run], (*Proposal).setsVersion)
			n += run
		}
	}
	q.spare.entry = data
	of.proposals, of.time = q.waiting[:n:n], l.time
	return data, of
}

// run encodes a run of commands from the start of list. All of them were forwarded by the same
// member under consecutive numbers. It stops at the first command that would begin beyond room
// bytes or that l has no time for. n is 0 if the first command is too large or takes too long.
func (q *queue) run(list []*Proposal, room int, l *load) (body []byte, n int) {
	body = q.spare.body[:0]
	for next := list[0].origin; n < len(list) && list[n].origin == next &&
		len(body) < room && l.takes(list[n]); next.Seq++ {
		var ok bool
		if body, ok = appendCommand(body, list[n].Command); !ok {
			break
		}
		n++
	}
	q.spare.body = body
	return body, n
}

// remove removes the first n commands, which have been put in an entry or rejected.
func (q *queue) remove(n int) {
	if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
		q.waiting, q.spare.waiting = q.spare.waiting, nil
	}
}

// ended records that a command has an outcome, or that this leader will not produce one. A command
// that changes the cluster version is usually the one in the log, but it can also have been
// rejected before it was proposed. The ceiling stays in place while another such change is waiting.
func (q *queue) ended(p *Proposal, log *inflight) {
	if !p.setsVersion() {
		return
	}
	q.versioning = q.versioning && log.setsVersion()
	if !q.versioning && !slices.ContainsFunc(q.waiting, (*Proposal).setsVersion) {
		q.ceiling = 0
	}
}

// release drops an entry's proposals, and any memory that the next entry is unlikely to need.
func (m *memory) release(ps []*Proposal) {
	if cap(ps) <= keptMost {
		clear(ps)
		m.waiting = ps[:0]
	}
	if cap(m.entry) > keptBytes {
		m.entry = nil
	}
	if cap(m.body) > keptBytes {
		m.body = nil
	}
}

// keptMost and keptBytes bound the memory that is kept for the next entry.
const (
	keptMost  = 1024
	keptBytes = 256 << 10
)

// groupMax is the number of commands that can wait for one sync. When there are more, the next
// entry is proposed immediately, because the disk lags behind and pipelining helps.
const groupMax = 4096

// MaxCommand is the maximum size of an encoded command. The commands of an entry before the last
// one take fewer than Config.MaxBatch bytes.
const MaxCommand = 48 << 20

// MaxBeside bounds the size of a message to another member, not counting Config.MaxBatch bytes of
// commands and one command or cache message of any size. It allows for the maximum number of
// waiting requests, twice maxCacheBytes, and all parts of bounded length.
const MaxBeside = 15 << 20

// appendCommand appends a command to an entry. It returns false if the command is too large.
func appendCommand(b []byte, c fsm.Command) (_ []byte, ok bool) {
	out := fsm.AppendCommand(b, c)
	if len(out)-len(b) > MaxCommand {
		return b, false
	}
	return out, true
}
