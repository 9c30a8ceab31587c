package queue_test

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/queue"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// between stands between a client and a member, and answers some requests itself.
type between struct {
	pb.UnimplementedStreamServiceServer
	member *grpc.ClientConn
	// instead returns what to answer to a request, nil to pass it on. It is called by one
	// goroutine.
	instead func(r *pb.Request) *pb.Response
	// seen is told of each response of the member.
	seen func(r *pb.Response)
}

func (b *between) Open(s pb.StreamService_OpenServer) error {
	to, err := pb.NewStreamServiceClient(b.member).Open(s.Context())
	if err != nil {
		return err
	}
	var mu sync.Mutex // for s.Send
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() {
		for {
			m, err := to.Recv()
			if err != nil {
				return
			}
			for _, r := range m.Responses {
				b.seen(r)
			}
			mu.Lock()
			_ = s.Send(m) // if that fails the other direction ends it
			mu.Unlock()
		}
	})
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		var own []*pb.Response
		pass := m.Requests[:0:0]
		for _, r := range m.Requests {
			if a := b.instead(r); a != nil {
				a.Id = r.Id
				own = append(own, a)
			} else {
				pass = append(pass, r)
			}
		}
		if len(own) > 0 {
			mu.Lock()
			_ = s.Send(&pb.ServerMessage{Responses: own})
			mu.Unlock()
		}
		if m.Requests = pass; len(pass) > 0 {
			if err := to.Send(m); err != nil {
				return err
			}
		}
	}
}

// serve returns a client that goes through it to a member.
func (b *between) serve(t *testing.T, m *inprocess.Member) *client.Client {
	t.Helper()
	var err error
	b.member, err = grpc.NewClient(m.Endpoint(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(inprocess.Dir(t), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterStreamServiceServer(s, b)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		_ = b.member.Close()
		<-served
	})
	return inprocess.Connect(t, client.Config{}, "unix:"+socket)
}

// refusal is an answer that refuses.
func refusal(r pb.Reason) *pb.Response {
	return &pb.Response{Body: &pb.Response_Error{Error: &pb.Error{Reason: r, Message: "so it is"}}}
}

// Goal: a worker that waits does not forget an item of which it does not know whether it has
// claimed it, or whether it has buried it. Method: nothing is done, the outcome is not known, and
// then the cluster has forgotten the client.
func TestClaimUnsure(t *testing.T) {
	t.Parallel()
	r := rig.New(t, 1)
	direct := r.Dial(client.Config{})
	for name, cfg := range map[string]queue.Config{
		"claim": {TTL: time.Minute}, "dead": {TTL: time.Minute, MaxTries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var tries int
			watching := make(chan struct{}, 100)
			b := &between{
				instead: func(r *pb.Request) *pb.Response {
					for _, o := range r.GetTxn().GetSuccess() {
						dead := o.GetDeleteRange() != nil
						if o.GetGrant() == nil && !dead || dead != (name == "dead") {
							continue
						}
						switch tries++; tries {
						case 1:
							return refusal(pb.Reason_REASON_UNKNOWN_OUTCOME)
						case 2:
							return refusal(pb.Reason_REASON_SESSION_NOT_FOUND)
						}
						return nil
					}
					return nil
				},
				seen: func(r *pb.Response) {
					if r.GetWatch() != nil {
						watching <- struct{}{}
					}
				},
			}
			c := b.serve(t, r.Members[0])
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			q := queue.New(c, name, cfg)
			pushed := queue.New(direct, name, cfg)
			if name == "dead" {
				push(t, pushed, "dead")
				lost := claim(t, pushed)
				watch := rig.Async(func() (*queue.Item, error) { return q.Claim(ctx) })
				<-watching
				if err := direct.Revoke(ctx, lost.Lease().Ref()); err != nil {
					t.Fatal(err)
				}
				rig.Keys(t, direct, "dead/dead/", 1)
				push(t, pushed, "next")
				if a := <-watch; a.Err != nil || string(a.Value.Payload()) != "next" {
					t.Errorf("claimed %+v, %v", a.Value, a.Err)
				}
				return
			}
			got := rig.Async(func() (*queue.Item, error) { return q.Claim(ctx) })
			<-watching
			push(t, pushed, "x")
			if a := <-got; a.Err != nil || string(a.Value.Payload()) != "x" {
				t.Errorf("claimed %+v, %v", a.Value, a.Err)
			}
			if tries < 3 {
				t.Errorf("it was tried %d times", tries)
			}
		})
	}
}
