package native

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// TestScenarios runs the files in testdata/scenarios. They contain the requests that clients send
// over leasehold.v1 streams, in the Protobuf text format, and the responses. Run with -rewrite to
// update the responses, and review the diff.
//
//	send [on=NAME] [session=NONCE] [settled=N]
//	                 each line is a request on the named stream, which is opened first if
//	                 necessary. Each request is sent once the previous one is processed
//	close on=NAME    the client ends a stream
//	pass ms=N        time passes in steps, and due leases expire
//
// After each command, the responses on every stream follow, one per line. The state machine is
// real, but there is no log and no network, and the test controls the time.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			s := newScenario(t)
			datadriven.RunTest(t, path, s.run)
			s.stop()
		})
	})
}

// liveNode is a fakeNode that notifies watchers once all requests in a message are processed. This
// makes the number of messages to watchers deterministic.
type liveNode struct {
	*fakeNode
	hub    *watch.Hub[*api.Event]
	queues *waitqueue.Queues
}

func newLiveNode() *liveNode { return live(newNode()) }

// live wraps a node whose watchers have not been notified of anything yet.
func live(f *fakeNode) *liveNode {
	n := &liveNode{fakeNode: f}
	n.machine.TakeChanges()
	n.hub = watch.New(func() watch.History[*api.Event] {
		return api.NewHistory(n.View().KV)
	}, watch.Options{})
	n.queues = waitqueue.New(n.hub, func() *mvcc.View { return n.View().KV })
	n.applied = func() { api.Publish(n.hub, n.machine.TakeChanges()) }
	return n
}

func (n *liveNode) Watches() *watch.Hub[*api.Event] { return n.hub }

func (n *liveNode) WaitQueues() *waitqueue.Queues { return n.queues }

// expire ends due leases, as a leader does.
func (n *liveNode) expire(t *testing.T) {
	n.mu.Lock()
	due := n.machine.Lessor().Due(100)
	n.mu.Unlock()
	if len(due) == 0 {
		return
	}
	if _, err := n.Propose(t.Context(), &fsm.Expire{Term: 2, Leases: due}); err != nil {
		t.Fatal(err)
	}
}

// scenario is a member with the streams of its clients, by name.
type scenario struct {
	node     *liveNode
	streams  map[string]*pipe
	sessions map[string]*pb.SessionRef // by nonce
	ctx      context.Context
	stop     func()
}

func newScenario(t *testing.T) *scenario {
	s := &scenario{streams: make(map[string]*pipe), sessions: make(map[string]*pb.SessionRef)}
	s.ctx, s.stop = context.WithCancel(t.Context())
	s.node = newLiveNode()
	return s
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "send":
		s.send(t, d)
	case "close":
		close(s.streams[text(t, d, "on")].requests)
	case "pass":
		var ms int64
		for d.ScanArgs(t, "ms", &ms); ms > 0; ms -= step {
			s.node.advance(lease.Instant(min(ms, step)))
			<-time.After(time.Duration(min(ms, step)) * time.Millisecond)
			s.node.expire(t)
		}
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	synctest.Wait()
	s.node.hub.Distribute()
	synctest.Wait()
	return s.answers(t)
}

// step is the time that passes in one step, in milliseconds.
const step = 100

func text(t *testing.T, d *datadriven.TestData, name string) (v string) {
	d.MaybeScanArgs(t, name, &v)
	return v
}

func (s *scenario) send(t *testing.T, d *datadriven.TestData) {
	name := text(t, d, "on")
	if s.streams[name] == nil {
		s.streams[name] = s.open(t)
	}
	for line := range strings.Lines(d.Input) {
		r := new(pb.Request)
		if err := prototext.Unmarshal([]byte(line), r); err != nil {
			d.Fatalf(t, "%v", err)
		}
		m := &pb.ClientMessage{
			Session: s.sessions[text(t, d, "session")], Requests: []*pb.Request{r},
		}
		d.MaybeScanArgs(t, "acknowledged-below", &m.AcknowledgedBelow)
		s.streams[name].requests <- m
		synctest.Wait()
	}
}

// open opens a stream. The member sends the first message.
func (s *scenario) open(t *testing.T) *pipe {
	w := &pipe{
		ctx: s.ctx, requests: make(chan *pb.ClientMessage),
		answers: make(chan *pb.ServerMessage, 100),
	}
	streams := &streams{store: &store{
		leases: service(s.node, Options{ClusterID: 12, MemberID: 1}).leases, node: s.node,
	}}
	go func() {
		if err := streams.Open(w); err != nil && s.ctx.Err() == nil {
			t.Errorf("a stream ended: %v", err)
		}
	}()
	<-w.answers
	return w
}

// shownText returns a response in the text format, with single spaces. It omits the header except
// for the revision.
func shownText(t *testing.T, r *pb.Response) string {
	m := r.ProtoReflect()
	if body := m.WhichOneof(m.Descriptor().Oneofs().ByName("body")); body != nil {
		of := m.Get(body).Message()
		if h := of.Descriptor().Fields().ByName("header"); h != nil && of.Has(h) {
			revision := of.Get(h).Message().Interface().(*pb.Header).Revision
			of.Set(h, protoreflect.ValueOfMessage((&pb.Header{Revision: revision}).ProtoReflect()))
		}
	}
	line, err := prototext.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(line), "  ", " ")
}

// answers returns the responses since the last call, with the streams sorted by name.
func (s *scenario) answers(t *testing.T) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.streams)) {
		for w := s.streams[name]; len(w.answers) > 0; {
			for _, r := range (<-w.answers).Responses {
				if ref := r.GetSession().GetSession(); ref != nil {
					s.sessions[strconv.FormatUint(ref.Nonce, 10)] = ref
				}
				out = append(out, strings.TrimSpace(name+" "+shownText(t, r)))
			}
		}
	}
	return cmp.Or(strings.Join(out, "\n"), "nothing") + "\n"
}
