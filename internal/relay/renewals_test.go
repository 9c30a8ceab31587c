package relay

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/channel"
)

func renewal(id uint64, r *pb.RenewRequest) *pb.ClientMessage {
	return &pb.ClientMessage{
		Requests: []*pb.Request{{Id: id, Body: &pb.Request_Renew{Renew: r}}},
	}
}

// Goal: what goes in columns is a renewal by IDs and nothing else: what else a message says would
// be lost. Method: messages of all kinds, and one with fields of a later version at each level.
func TestParseRenewal(t *testing.T) {
	ids := []int64{1, -2}
	simple := func() *pb.ClientMessage { return renewal(7, &pb.RenewRequest{Ids: ids}) }
	encoded := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	r, ok := parseRenewal(encoded(simple()))
	if !ok || r.Request != 7 || !slices.Equal(r.IDs, ids) || !slices.Equal(r.Tokens, []uint64{0, 0}) {
		t.Errorf("%v, %v", r, ok)
	}
	tokens := simple()
	tokens.Requests[0].GetRenew().Tokens = []uint64{3, 4}
	tokens.Requests[0].TimeoutMs = leastTimeout
	r, ok = parseRenewal(encoded(tokens))
	if !ok || r.Request != 7 || !slices.Equal(r.IDs, ids) || !slices.Equal(r.Tokens, []uint64{3, 4}) {
		t.Errorf("with tokens: %v, %v", r, ok)
	}
	unknown := []byte{0xf8, 0x07, 1} // field 127
	for name, change := range map[string]func(m *pb.ClientMessage){
		"a session": func(m *pb.ClientMessage) { m.Session = &pb.SessionRef{} },
		"settled":   func(m *pb.ClientMessage) { m.Settled = 1 },
		"two":       func(m *pb.ClientMessage) { m.Requests = append(m.Requests, m.Requests[0]) },
		"none":      func(m *pb.ClientMessage) { m.Requests = nil },
		"by name": func(m *pb.ClientMessage) {
			m.Requests[0].GetRenew().Leases = []*pb.LeaseRef{{Name: "n"}}
		},
		"no IDs": func(m *pb.ClientMessage) { m.Requests[0].GetRenew().Ids = nil },
		"many": func(m *pb.ClientMessage) {
			m.Requests[0].GetRenew().Ids = make([]int64, maxRenewed+1)
		},
		"few tokens":   func(m *pb.ClientMessage) { m.Requests[0].GetRenew().Tokens = []uint64{1} },
		"a short time": func(m *pb.ClientMessage) { m.Requests[0].TimeoutMs = leastTimeout - 1 },
		"a number":     func(m *pb.ClientMessage) { m.Requests[0].Number = 1 },
		"a put": func(m *pb.ClientMessage) {
			m.Requests[0].Body = &pb.Request_Put{Put: &pb.PutRequest{}}
		},
		"a trace": func(m *pb.ClientMessage) { m.Requests[0].Traceparent = "x" },
		"later":   func(m *pb.ClientMessage) { m.ProtoReflect().SetUnknown(unknown) },
		"later, in the request": func(m *pb.ClientMessage) {
			m.Requests[0].ProtoReflect().SetUnknown(unknown)
		},
		"later, in the renewal": func(m *pb.ClientMessage) {
			m.Requests[0].GetRenew().ProtoReflect().SetUnknown(unknown)
		},
	} {
		m := simple()
		change(m)
		if r, ok := parseRenewal(encoded(m)); ok {
			t.Errorf("%s goes in columns as %v", name, r)
		}
	}
}

// Goal: the relay keeps what goes in columns until it is answered, so that it is never large. A
// message may have any number of fields that say nothing.
func TestLargeRenewal(t *testing.T) {
	empty := bytes.Repeat([]byte{fieldIDs<<3 | 2, 0}, maxMessage/2)
	for size := range len(empty) / 2 {
		ids := append([]byte{fieldIDs<<3 | 2, 8, 1, 0, 0, 0, 0, 0, 0, 0}, empty[:2*size]...)
		request := protowire.AppendBytes([]byte{fieldRenew<<3 | 2}, ids)
		message := protowire.AppendBytes([]byte{fieldRequests<<3 | 2}, request)
		if err := proto.Unmarshal(message, new(pb.ClientMessage)); err != nil {
			t.Fatal(err)
		}
		if _, ok := parseRenewal(message); ok != (len(message) <= maxMessage) {
			t.Fatalf("a message of %d bytes: %v", len(message), ok)
		}
	}
	largest := renewal(math.MaxInt64, &pb.RenewRequest{
		Ids: make([]int64, maxRenewed), Tokens: make([]uint64, maxRenewed),
	})
	largest.Requests[0].TimeoutMs = math.MaxInt64
	if b, err := proto.Marshal(largest); err != nil {
		t.Fatal(err)
	} else if _, ok := parseRenewal(b); !ok {
		t.Error("a renewal of as many leases as may be does not go in columns")
	}
}

// unheard is a stream to a member that says nothing.
type unheard struct {
	pb.RelayService_RelayClient
	sent chan *pb.RelayRequest
	end  chan struct{}
}

// Send implements pb.RelayService_RelayClient.
func (u unheard) Send(m *pb.RelayRequest) error {
	u.sent <- m
	return nil
}

// Recv implements pb.RelayService_RelayClient.
func (u unheard) Recv() (*pb.RelayResponse, error) {
	<-u.end
	return nil, io.EOF
}

// Goal: renewals go in columns only to a member that has said that it takes them. One of an earlier
// version would drop them, and the leases would end.
func TestColumnsOnlyToWhoTakesThem(t *testing.T) {
	for _, takes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			u := unheard{sent: make(chan *pb.RelayRequest, 10), end: make(chan struct{})}
			l := linkOf(u, &pb.RelayResponse{TakesRenewals: takes})
			go func() { _ = l.Run(t.Context()) }() // it ends with the stream
			c, err := l.Open(&pb.RelayCall{})
			if err != nil {
				t.Fatal(err)
			}
			<-u.sent
			synctest.Wait()
			r := channel.Renewal{Request: 1, IDs: []int64{1}, Tokens: []uint64{1}}
			if got := c.Renew([]byte("r"), r); got != takes {
				t.Errorf("renewed in columns: %v, and the member takes them: %v", got, takes)
			}
			synctest.Wait()
			if takes != (len(u.sent) == 1) || takes && (<-u.sent).Renewals == nil {
				t.Errorf("a member that takes them, %v, is sent something else", takes)
			}
			close(u.end)
		})
	}
}

// FuzzParseRenewal: what goes in columns says the same as what the client has sent.
func FuzzParseRenewal(f *testing.F) {
	for _, m := range []*pb.ClientMessage{
		renewal(1, &pb.RenewRequest{Ids: []int64{1}}),
		renewal(1<<62, &pb.RenewRequest{Ids: []int64{1, 2}, Tokens: []uint64{3, 4}}),
		{Requests: []*pb.Request{{Id: 1, Body: &pb.Request_Put{Put: &pb.PutRequest{Key: []byte("k")}}}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		r, ok := parseRenewal(message)
		if !ok {
			return
		}
		m := new(pb.ClientMessage)
		if err := proto.Unmarshal(message, m); err != nil {
			t.Fatal(err)
		}
		q := m.Requests[0]
		want := renewal(r.Request, &pb.RenewRequest{Ids: r.IDs, Tokens: r.Tokens})
		want.Requests[0].TimeoutMs = q.TimeoutMs
		if len(q.GetRenew().GetTokens()) == 0 && !slices.ContainsFunc(r.Tokens,
			func(x uint64) bool { return x != 0 }) {
			want.Requests[0].GetRenew().Tokens = nil
		}
		if fmt.Sprint(m) != fmt.Sprint(want) {
			t.Errorf("%v was taken for %v", m, want)
		}
	})
}
