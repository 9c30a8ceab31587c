package shell

import (
	"iter"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// Saver is the order in which a member saves the messages of replica.Output.Append: what it
// writes, when it syncs, and when it reports a message as durable. The zero value has saved
// nothing. It belongs to one goroutine, that of the disk.
type Saver struct {
	lazy    *raftpb.HardState // a hard state that may wait for the next write
	entries []*raftpb.Entry   // of the next write
	bytes   int               // of their data
	due     bool              // the next write must come before anything is reported
	taken   []*raftpb.Message // not yet reported as durable
	rest    []*raftpb.Message // of the batch, not yet saved
	// overtaken says that what comes before the next snapshot is left out: see Overtaken.
	overtaken bool

	term uint64 // those of the hard state that was written last
	vote uint64
}

// Saving is one action of the disk, of three kinds.
type Saving struct {
	// Install, if not nil, asks for a snapshot that has arrived: make it the newest one, durably.
	Install *raftpb.Message
	// Saved, if not empty, are durable now: report it. The Saver owns the memory.
	Saved []*raftpb.Message
	// Otherwise write Entries, and State if it is not nil, durably and as one step.
	Entries []*raftpb.Entry
	State   *raftpb.HardState
}

// Awaited reports whether a message must become durable because something waits for it
// (replica.Output.Append).
func Awaited(m *raftpb.Message) bool {
	return len(m.GetEntries()) > 0 || len(m.GetResponses()) > 0 || asksForSnapshot(m)
}

func asksForSnapshot(m *raftpb.Message) bool {
	return m.GetSnapshot().GetMetadata().GetIndex() != 0
}

// writeBytes is how much of entries is written at once, at most, but for the last message.
const writeBytes = 4 << 20

// Save yields the actions that save messages, in order, as one write if it does not become too
// large. So a follower catches up after many small messages came while its disk was busy. A caller
// that stops before the end must not use the Saver again.
//
// A message with only a commit index need not be durable: losing it costs nothing, so it waits
// for the next write. The responses of such a message, for instance one that tells a follower of
// a commit, wait only for what was written before.
func (s *Saver) Save(batch []*raftpb.Message) iter.Seq[Saving] {
	return func(yield func(Saving) bool) {
		for i, m := range batch {
			s.rest = batch[i:]
			if asksForSnapshot(m) {
				if !s.settle(yield) || !yield(Saving{Install: m}) {
					return
				}
				s.overtaken = false
			}
			if m.Term != nil || m.Vote != nil || m.Commit != nil {
				s.lazy = &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
			}
			if s.overtaken {
				continue
			}
			s.due = s.needed(m) || s.due
			s.add(m.GetEntries())
			s.taken, s.rest = append(s.taken, m), batch[i+1:]
			if s.bytes >= writeBytes && !s.write(yield) {
				return
			}
		}
		s.settle(yield)
	}
}

// Votes saves the newest term and vote of all messages that wait, those of Save and those queued
// behind them, ahead of their entries. It returns the answers to candidates, which depend on
// nothing else, as one durable message, nil if there are none.
//
// A voter has compared the candidate's log with its own, of which some is not durable. A crash can
// only make that shorter, and so the vote right all the more.
func (s *Saver) Votes(
	queued []*raftpb.Message, save func(term, vote uint64) error,
) (*raftpb.Message, error) {
	waiting := slices.Concat(s.taken, s.rest, queued)
	if !slices.ContainsFunc(waiting, func(m *raftpb.Message) bool {
		return slices.ContainsFunc(m.GetResponses(), isVote)
	}) {
		return nil, nil
	}
	newest := &raftpb.HardState{Term: &s.term, Vote: &s.vote}
	if s.lazy != nil {
		newest = s.lazy
	}
	for _, m := range waiting {
		if m.Term != nil {
			newest = &raftpb.HardState{Term: m.Term, Vote: m.Vote}
		}
	}
	if err := save(newest.GetTerm(), newest.GetVote()); err != nil {
		return nil, err
	}
	durable := &raftpb.Message{}
	for _, m := range waiting {
		var others []*raftpb.Message
		for _, r := range m.GetResponses() {
			if isVote(r) {
				durable.Responses = append(durable.Responses, r)
			} else {
				others = append(others, r)
			}
		}
		m.Responses = others
	}
	return durable, nil
}

// Overtaken reports whether a snapshot waits, in this batch or among those queued behind it, while
// there is no room for the write that Save has yielded. When Raft took the snapshot it dropped all
// entries before it. So the caller leaves the write out; the messages up to the snapshot are not
// reported, and of them only the hard state is written.
func (s *Saver) Overtaken(x *Saving, queued []*raftpb.Message) bool {
	if !slices.ContainsFunc(s.rest, asksForSnapshot) &&
		!slices.ContainsFunc(queued, asksForSnapshot) {
		return false
	}
	clear(s.taken)
	s.taken, s.lazy, s.due, s.overtaken = s.taken[:0], x.State, true, true
	return true
}

func isVote(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgVoteResp || m.GetType() == raftpb.MsgPreVoteResp
}

// Left returns the hard state that is not yet written, nil for none.
func (s *Saver) Left() *raftpb.HardState { return s.lazy }

// needed reports whether a message must become durable: it has entries, or its responses promise
// a snapshot, or a term or vote other than those written last.
func (s *Saver) needed(m *raftpb.Message) bool {
	return len(m.GetEntries()) > 0 || len(m.GetResponses()) > 0 &&
		(asksForSnapshot(m) || m.Term != nil && m.GetTerm() != s.term ||
			m.Vote != nil && m.GetVote() != s.vote)
}

// add adds entries to the next write. They replace those of the same index and all after them.
func (s *Saver) add(entries []*raftpb.Entry) {
	if len(entries) == 0 {
		return
	}
	keep := len(s.entries)
	for keep > 0 && s.entries[keep-1].GetIndex() >= entries[0].GetIndex() {
		keep--
	}
	switch {
	case keep == 0:
		s.entries = slices.Clip(entries) // one message is the usual case
	case keep < len(s.entries):
		s.entries = append(slices.Clip(s.entries[:keep]), entries...)
	default:
		s.entries = append(s.entries, entries...) // to memory of its own, which grows by doubling
	}
	for _, e := range entries {
		s.bytes += len(e.GetData())
	}
}

func (s *Saver) write(yield func(Saving) bool) bool {
	x := Saving{Entries: s.entries, State: s.lazy}
	if s.lazy != nil {
		s.term, s.vote = s.lazy.GetTerm(), s.lazy.GetVote()
	}
	s.lazy, s.entries, s.bytes, s.due = nil, nil, 0, false
	return yield(x)
}

// settle writes what is due, and reports what is durable then.
func (s *Saver) settle(yield func(Saving) bool) bool {
	if s.due && !s.write(yield) {
		return false
	}
	saved := s.taken[:0]
	for _, m := range s.taken {
		if Awaited(m) {
			saved = append(saved, m)
		}
	}
	clear(s.taken[len(saved):])
	s.taken = s.taken[:0]
	more := len(saved) == 0 || yield(Saving{Saved: saved})
	clear(saved)
	return more
}
