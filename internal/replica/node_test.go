package replica

import (
	"testing"

	"leasehold.dev/internal/fsm"
)

// TestRaftCopies checks that Raft copies proposals, because encode reuses its memory.
func TestRaftCopies(t *testing.T) {
	m := lead(t)
	m.r.Propose(&Proposal{Command: &fsm.Put{Key: "k", Value: []byte("v")}})
	m.take()
	if len(m.r.lead.queue.spare.entry) == 0 {
		t.Fatal("nothing was encoded")
	}
	clear(m.r.lead.queue.spare.entry)
	m.settle()
	if kv := m.m.View().KV.Get("k"); kv == nil || string(kv.Value) != "v" {
		t.Errorf("the key is %+v", kv)
	}
}

// TestProposalsReused checks that commands that share an entry get their own answers, even though
// memory is reused in every round.
func TestProposalsReused(t *testing.T) {
	m := lead(t)
	m.r.lead.queue.maxBatch = 100
	for round := range 20 {
		m.proposals = nil
		var proposed []*Proposal
		for i := range 1 + round*7%30 {
			p := &Proposal{Command: &fsm.Put{Key: "k", Value: make([]byte, i)}}
			m.r.Propose(p)
			proposed = append(proposed, p)
			if i%5 == 0 {
				m.take()
			}
		}
		m.settle()
		if len(m.proposals) != len(proposed) {
			t.Fatalf("round %d: %d answers to %d", round, len(m.proposals), len(proposed))
		}
		for i, p := range proposed {
			if m.proposals[i] != p || p.Err != nil ||
				i > 0 && p.Result.Revision != proposed[i-1].Result.Revision+1 {
				t.Fatalf("round %d: answer %d is %+v", round, i, m.proposals[i])
			}
		}
	}
}
