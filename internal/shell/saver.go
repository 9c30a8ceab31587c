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
	lazy     *raftpb.HardState // a hard state that may wait for the next sync
	written  []*raftpb.Message // not yet reported as durable
	rest     []*raftpb.Message // of the batch, not yet written
	unsynced bool              // something was written since the last sync
	term     uint64            // those of the hard state that was written last
	vote     uint64
}

// Saving is one action of the disk, of three kinds.
type Saving struct {
	// Install, if not nil, asks for a snapshot that has arrived: make it the newest one, durably.
	Install *raftpb.Message
	// Saved, if not empty, are durable now: report it. The Saver owns the memory.
	Saved []*raftpb.Message
	// Otherwise write Entries, and State if it is not nil. If Sync is set, then wait until this
	// and everything written before is durable.
	Entries []*raftpb.Entry
	State   *raftpb.HardState
	Sync    bool
}

// Awaited reports whether a message must become durable because something waits for it
// (replica.Output.Append).
func Awaited(m *raftpb.Message) bool {
	return len(m.GetEntries()) > 0 || len(m.GetResponses()) > 0 || asksForSnapshot(m)
}

func asksForSnapshot(m *raftpb.Message) bool {
	return m.GetSnapshot().GetMetadata().GetIndex() != 0
}

// Save yields the actions that save messages, in order, with one sync at the end. So a follower
// catches up after many small messages came while its disk was busy. A caller that stops before
// the end must not use the Saver again.
//
// A message with only a commit index need not be durable: losing it costs nothing, so it waits
// for the next write. The responses of such a message, for instance one that tells a follower of
// a commit, wait only for what was written before.
func (s *Saver) Save(batch []*raftpb.Message) iter.Seq[Saving] {
	return func(yield func(Saving) bool) {
		for i, m := range batch {
			s.rest = batch[i:]
			if asksForSnapshot(m) && (!s.settle(yield) || !yield(Saving{Install: m})) {
				return
			}
			if m.Term != nil || m.Vote != nil || m.Commit != nil {
				s.lazy = &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
			}
			if s.needed(m) && !s.write(m.GetEntries(), i == len(batch)-1, yield) {
				return
			}
			s.written = append(s.written, m)
		}
		s.rest = nil
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
	waiting := slices.Concat(s.written, s.rest, queued)
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

func (s *Saver) write(entries []*raftpb.Entry, sync bool, yield func(Saving) bool) bool {
	x := Saving{Entries: entries, State: s.lazy, Sync: sync}
	if s.unsynced = !sync; s.lazy != nil {
		s.term, s.vote = s.lazy.GetTerm(), s.lazy.GetVote()
	}
	s.lazy = nil
	return yield(x)
}

// settle syncs what was written but not synced, and reports what is durable then.
func (s *Saver) settle(yield func(Saving) bool) bool {
	if s.unsynced && !s.write(nil, true, yield) {
		return false
	}
	saved := s.written[:0]
	for _, m := range s.written {
		if Awaited(m) {
			saved = append(saved, m)
		}
	}
	clear(s.written[len(saved):])
	s.written = s.written[:0]
	more := len(saved) == 0 || yield(Saving{Saved: saved})
	clear(saved)
	return more
}
