package shell

import (
	"iter"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// Saver defines the order in which a member saves the messages in replica.Output.Append: the
// writes, the syncs, and the reports of durable messages. The zero value is ready to use. A Saver
// belongs to the disk's goroutine.
type Saver struct {
	lazy    *raftpb.HardState // a hard state that can wait for the next write
	entries []*raftpb.Entry   // entries for the next write
	bytes   int               // size of their data
	due     bool              // write before reporting any message
	taken   []*raftpb.Message // not yet reported as durable
	rest    []*raftpb.Message // rest of the batch, not saved yet
	// overtaken is set if everything before the next snapshot is skipped; see Overtaken.
	overtaken bool

	term uint64 // term and vote of the hard state that was last written
	vote uint64
}

// Saving is one of the actions that save messages (see [Saver.Save]). There are three kinds.
type Saving struct {
	// Install, if not nil, is a snapshot that has arrived. Make it the newest one, durably.
	Install *raftpb.Message
	// Saved, if not empty, lists messages that are now durable. Report them. The Saver owns the
	// list.
	Saved []*raftpb.Message
	// Otherwise, write Entries, and State if it is not nil, durably and in one step.
	Entries []*raftpb.Entry
	State   *raftpb.HardState
}

// Awaited reports whether a message must become durable because another part of the member is
// waiting for it (see replica.Output.Append).
func Awaited(m *raftpb.Message) bool {
	return len(m.GetEntries()) > 0 || len(m.GetResponses()) > 0 || asksForSnapshot(m)
}

func asksForSnapshot(m *raftpb.Message) bool {
	return m.GetSnapshot().GetMetadata().GetIndex() != 0
}

// writeBytes limits the size of one write, not counting the last message.
const writeBytes = 4 << 20

// Save yields the actions that save messages, in order. It combines messages into one write unless
// the write becomes too large. So a follower can catch up after many small messages have arrived
// while its disk was busy. If the caller stops early, it must not use the Saver again.
//
// A message that contains only a commit index need not be durable. Losing it costs nothing, so it
// waits for the next write. The responses to such a message, for example the response that reports
// a commit to a follower, wait only for earlier writes.
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

// Votes saves the newest term and vote of all waiting messages ahead of their entries. The waiting
// messages are those passed to Save and those queued behind them. Votes returns the answers to
// candidates as one durable message, because they depend only on the term and vote. It returns nil
// if there are no such answers.
//
// A voter has compared the candidate's log with its own, part of which is not durable. But a crash
// can only make the voter's log shorter, in which case the vote is all the more justified.
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

// Overtaken reports whether a snapshot is waiting while there is no space for the write that Save
// has yielded. The snapshot can be in this batch or among the messages queued behind it. When Raft
// accepted the snapshot, it dropped all entries before it, so the caller skips the write. The
// messages up to the snapshot are not reported, and only their hard state is written.
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

// Left returns the hard state that has not been written yet, or nil.
func (s *Saver) Left() *raftpb.HardState { return s.lazy }

// needed reports whether a message must become durable: if it has entries, or if its responses
// promise a snapshot, or a term or vote that differs from the last one written.
func (s *Saver) needed(m *raftpb.Message) bool {
	return len(m.GetEntries()) > 0 || len(m.GetResponses()) > 0 &&
		(asksForSnapshot(m) || m.Term != nil && m.GetTerm() != s.term ||
			m.Vote != nil && m.GetVote() != s.vote)
}

// add adds entries to the next write. They replace all entries at or after their first index.
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
		s.entries = slices.Clip(entries) // the usual case: one message
	case keep < len(s.entries):
		s.entries = append(slices.Clip(s.entries[:keep]), entries...)
	default:
		// copied to memory that the Saver owns, which grows by doubling
		s.entries = append(s.entries, entries...)
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

// settle writes everything that is due, and then reports the durable messages.
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
