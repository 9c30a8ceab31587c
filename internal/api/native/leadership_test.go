package native

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
)

// fakeLeader reports the leader set by the test, if any.
type fakeLeader struct {
	leaderMu      sync.Mutex // guards the following fields
	leader        uint64
	leaderChanged chan struct{}
	outage        string
	accessChanged chan struct{} // nil until it is requested
}

// AccessChanged implements api.Node.
func (n *fakeLeader) AccessChanged() <-chan struct{} {
	n.leaderMu.Lock()
	defer n.leaderMu.Unlock()
	if n.accessChanged == nil {
		n.accessChanged = make(chan struct{})
	}
	return n.accessChanged
}

// changeAccess signals that users or roles have changed.
func (n *fakeLeader) changeAccess() {
	n.leaderMu.Lock()
	defer n.leaderMu.Unlock()
	if n.accessChanged != nil {
		close(n.accessChanged)
		n.accessChanged = nil
	}
}

// Outage implements Node.
func (n *fakeLeader) Outage() string {
	n.leaderMu.Lock()
	defer n.leaderMu.Unlock()
	return n.outage
}

func (n *fakeLeader) Leader() (id uint64, changed <-chan struct{}) {
	n.leaderMu.Lock()
	defer n.leaderMu.Unlock()
	if n.leaderChanged == nil {
		n.leaderChanged = make(chan struct{})
	}
	return n.leader, n.leaderChanged
}

// lead makes the given member the leader.
func (n *fakeLeader) lead(id uint64) {
	n.leaderMu.Lock()
	defer n.leaderMu.Unlock()
	n.leader = id
	if n.leaderChanged != nil {
		close(n.leaderChanged)
	}
	n.leaderChanged = nil
}

// TestLeadership checks that the first message on a stream names the leader, and that another
// message follows whenever the leader changes. Messages include the leader's client URLs if the
// state has them.
func TestLeadership(t *testing.T) {
	onStream(t, func(b *bench) {
		if want := (&pb.Leadership{MemberId: 5}); !equal(b.hello.Leadership, want) {
			t.Errorf("first sent %v, want %v", b.hello, want)
		}
		urls := []string{"http://a:1", "http://b:1"}
		b.node.mu.Lock() // the stream could be reading
		b.node.machine.AddMember(fsm.Member{ID: 7, ClientURLs: urls})
		b.node.mu.Unlock()
		responses := func() (out []*pb.Leadership) {
			synctest.Wait()
			for len(b.answers) > 0 {
				m := <-b.answers
				if len(m.Responses) > 0 {
					t.Errorf("responses %v", m.Responses)
				}
				out = append(out, m.Leadership)
			}
			return out
		}
		for _, want := range []*pb.Leadership{
			{MemberId: 5, LeaderId: 7, LeaderClientUrls: urls},
			{MemberId: 5, LeaderId: 8},
			{MemberId: 5, LeaderId: 5},
			{MemberId: 5},
		} {
			b.node.lead(want.LeaderId)
			if got := responses(); !slices.EqualFunc(got, []*pb.Leadership{want}, equal) {
				t.Errorf("sent %v, want %v", got, want)
			}
		}
	})
}

func equal(a, b *pb.Leadership) bool { return proto.Equal(a, b) }
