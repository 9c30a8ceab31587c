package relay

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/lease"
)

func requestOf(r renewal) *pb.RenewRequest {
	out := &pb.RenewRequest{}
	for i, id := range r.ids {
		out.Ids, out.Tokens = append(out.Ids, int64(id)), append(out.Tokens, uint64(r.tokens[i]))
	}
	return out
}

func renewalOf(id uint64, r *pb.RenewRequest) *pb.ClientMessage {
	return &pb.ClientMessage{
		Requests: []*pb.Request{{Id: id, Body: &pb.Request_Renew{Renew: r}}},
	}
}

// TestParseRenewal checks that the relay itself answers only renewals by ID. A message containing
// anything else, including a field of a later version, goes to the member.
func TestParseRenewal(t *testing.T) {
	ids, leases := []int64{1, -2}, []lease.ID{1, -2}
	simple := func() *pb.ClientMessage { return renewalOf(7, &pb.RenewRequest{Ids: ids}) }
	encoded := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	r, ok := parseRenewal(encoded(simple()))
	if !ok || r.request != 7 || !slices.Equal(r.ids, leases) || !slices.Equal(r.tokens, []lease.Token{0, 0}) {
		t.Errorf("%v, %v", r, ok)
	}
	tokens := simple()
	tokens.Requests[0].GetRenew().Tokens = []uint64{3, 4}
	tokens.Requests[0].GetRenew().Join = true
	tokens.Requests[0].TimeoutMs = leastTimeout
	r, ok = parseRenewal(encoded(tokens))
	if !ok || r.request != 7 || !slices.Equal(r.ids, leases) || !slices.Equal(r.tokens, []lease.Token{3, 4}) {
		t.Errorf("with tokens: %v, %v", r, ok)
	}
	unknown := []byte{0xf8, 0x07, 1} // field 127
	for name, change := range map[string]func(m *pb.ClientMessage){
		"a session": func(m *pb.ClientMessage) { m.Session = &pb.SessionRef{} },
		"settled":   func(m *pb.ClientMessage) { m.AcknowledgedBelow = 1 },
		"two":       func(m *pb.ClientMessage) { m.Requests = append(m.Requests, m.Requests[0]) },
		"none":      func(m *pb.ClientMessage) { m.Requests = nil },
		"by name": func(m *pb.ClientMessage) {
			m.Requests[0].GetRenew().Leases = []*pb.LeaseRef{{Name: "n"}}
		},
		"no IDs":       func(m *pb.ClientMessage) { m.Requests[0].GetRenew().Ids = nil },
		"groups":       func(m *pb.ClientMessage) { m.Requests[0].GetRenew().Groups = []uint64{1} },
		"leaves":       func(m *pb.ClientMessage) { m.Requests[0].GetRenew().Leave = ids },
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
			t.Errorf("%s was parsed as a renewal: %v", name, r)
		}
	}
}

// FuzzParseRenewal checks that a renewal parsed by the relay means what the client sent.
func FuzzParseRenewal(f *testing.F) {
	for _, m := range []*pb.ClientMessage{
		renewalOf(1, &pb.RenewRequest{Ids: []int64{1}}),
		renewalOf(1<<62, &pb.RenewRequest{Ids: []int64{1, 2}, Tokens: []uint64{3, 4}}),
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
		want := renewalOf(r.request, requestOf(r))
		want.Requests[0].TimeoutMs = q.TimeoutMs
		want.Requests[0].GetRenew().Join = q.GetRenew().GetJoin()
		if len(q.GetRenew().GetTokens()) == 0 && !slices.ContainsFunc(r.tokens,
			func(x lease.Token) bool { return x != 0 }) {
			want.Requests[0].GetRenew().Tokens = nil
		}
		if fmt.Sprint(m) != fmt.Sprint(want) {
			t.Errorf("%v was parsed as %v", m, want)
		}
	})
}
