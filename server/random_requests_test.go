package server

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	pb "leasehold.dev/api/leasehold/v1"
	_ "leasehold.dev/internal/api/etcd" // registers the services of etcd
)

// FuzzRequests checks that random requests to every method neither end the process nor cause a
// panic. Panics recovered by a handler count as well.
func FuzzRequests(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(seed)
	}
	c := testConfig(f.TempDir())
	member := run(f, c)
	conn := member.client.ActiveConnection()
	sessions(f, conn)
	methods := servedMethods()
	stream := methods[slices.IndexFunc(methods, func(m method) bool { return m.Name() == "Open" })]
	f.Fuzz(func(t *testing.T, seed uint64) {
		d := &drawer{rand.New(rand.NewPCG(seed, 1))}
		for range 60 {
			m := methods[d.IntN(len(methods))]
			if d.IntN(2) == 0 {
				m = stream // the stream accepts many types of requests
			}
			d.call(t.Context(), conn, m)
		}
		if n := member.panics.Ended(); n > 0 {
			t.Fatalf("%d calls panicked", n)
		}
		if _, err := member.client.Status(t.Context(), member.client.Endpoints()[0]); err != nil {
			t.Fatal(err)
		}
	})
}

// sessions opens the sessions that random requests refer to.
func sessions(t testing.TB, conn *grpc.ClientConn) {
	s, err := pb.NewStreamServiceClient(conn).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id := range uint64(3) {
		err := s.Send(&pb.ClientMessage{Requests: []*pb.Request{{
			Id: id + 1, Body: &pb.Request_Session{Session: &pb.SessionRequest{Nonce: 1}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for opened := 0; opened < 3; {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range m.Responses {
			if r.GetSession() != nil {
				opened++
			}
		}
	}
}

// method is a gRPC method served by a member.
type method struct {
	path string
	protoreflect.MethodDescriptor
}

// servedMethods returns all methods except those that would stop the member from serving.
func servedMethods() (list []method) {
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			name := string(s.FullName())
			if !strings.HasPrefix(name, "etcdserverpb.") && !strings.HasPrefix(name, "v3") &&
				!strings.HasPrefix(name, "leasehold.") {
				continue
			}
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				switch m.Name() {
				case "MemberAdd", "MemberRemove", "MemberUpdate", "Alarm":
				default:
					list = append(list, method{"/" + name + "/" + string(m.Name()), m})
				}
			}
		}
		return true
	})
	return list
}

// drawer generates random requests.
type drawer struct{ *rand.Rand }

// call makes one random call and ignores its outcome.
func (d *drawer) call(ctx context.Context, conn *grpc.ClientConn, m method) {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if !m.IsStreamingClient() && !m.IsStreamingServer() {
		_ = conn.Invoke(ctx, m.path, d.message(m.Input(), 0), dynamicpb.NewMessage(m.Output()))
		return
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, m.path)
	if err != nil {
		return
	}
	messages := 1
	if m.IsStreamingClient() {
		messages = 10
	}
	for i := range messages {
		in := d.message(m.Input(), 0)
		number(in, uint64(i))
		if s.SendMsg(in) != nil {
			return
		}
	}
	_ = s.CloseSend()
	for s.RecvMsg(dynamicpb.NewMessage(m.Output())) == nil {
	}
}

// number gives the requests of a message increasing IDs.
func number(m *dynamicpb.Message, message uint64) {
	list := m.Descriptor().Fields().ByName("requests")
	if m.Descriptor().Name() != "ClientMessage" || !m.Has(list) {
		return
	}
	for i := range m.Get(list).List().Len() {
		r := m.Get(list).List().Get(i).Message()
		id := r.Descriptor().Fields().ByName("id")
		r.Set(id, protoreflect.ValueOfUint64(100*(message+1)+uint64(i)))
	}
}

// message returns a random message of type desc.
func (d *drawer) message(desc protoreflect.MessageDescriptor, depth int) *dynamicpb.Message {
	m := dynamicpb.NewMessage(desc)
	for i := range desc.Oneofs().Len() {
		if of := desc.Oneofs().Get(i); !of.IsSynthetic() && d.IntN(10) > 0 {
			d.field(m, of.Fields().Get(d.IntN(of.Fields().Len())), depth)
		}
	}
	for i := range desc.Fields().Len() {
		f := desc.Fields().Get(i)
		if f.ContainingOneof() != nil {
			continue
		}
		most := 3 // a field is set with probability 1/most
		if slices.Contains(needed, strings.ToLower(string(f.Name()))) {
			most = 1
		}
		if d.IntN(most) == 0 {
			d.field(m, f, depth)
		}
	}
	return m
}

func (d *drawer) field(m *dynamicpb.Message, f protoreflect.FieldDescriptor, depth int) {
	switch {
	// rarely, because held ranges make all writes wait for caches
	case f.Name() == "holds" && d.IntN(20) > 0:
	case f.Name() == "lease" && f.Kind() != protoreflect.MessageKind && d.IntN(2) > 0:
	case f.IsMap():
		for range d.IntN(3) {
			m.Mutable(f).Map().Set(d.value(f.MapKey(), depth).MapKey(), d.value(f.MapValue(), depth))
		}
	case f.IsList():
		for range d.IntN(4) {
			if v := d.value(f, depth); v.IsValid() {
				m.Mutable(f).List().Append(v)
			}
		}
	default:
		if v := d.value(f, depth); v.IsValid() {
			m.Set(f, v)
		}
	}
}

// texts and numbers are short lists so that requests often refer to the same objects. needed lists
// the fields without which most requests would be rejected immediately.
var (
	texts   = []string{"a", "b", "l/", "l/1", "l/0000000000000001", "\x00", "\xc3\xbc", ""}
	numbers = []int64{1, 2, 3, 4, 5, 0, 200, 5000, 1 << 40, 1<<63 - 1, -1, -1 << 63}
	needed  = []string{
		"requests", "session", "nonce", "id", "ttl", "ttl_ms", "key", "keys", "lease", "leases", "token",
	}
)

// text returns a random text, usually one of the first four.
func (d *drawer) text() string {
	if d.IntN(8) > 0 {
		return texts[d.IntN(4)]
	}
	return texts[d.IntN(len(texts))]
}

// value returns a random value. It returns the invalid value for messages nested too deeply.
func (d *drawer) value(f protoreflect.FieldDescriptor, depth int) protoreflect.Value {
	n := numbers[d.IntN(5)]
	if d.IntN(8) == 0 {
		n = numbers[d.IntN(len(numbers))]
	}
	switch name := strings.ToLower(string(f.Name())); {
	case strings.Contains(name, "ttl") && d.IntN(4) > 0:
		n = 5000
	case name == "nonce" && d.IntN(8) > 0:
		n = 1
	case name == "settled" && d.IntN(8) > 0:
		n = 0
	}
	switch f.Kind() {
	case protoreflect.MessageKind:
		if depth > 6 {
			return protoreflect.Value{}
		}
		return protoreflect.ValueOfMessage(d.message(f.Message(), depth+1))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(d.IntN(f.Enum().Values().Len() + 1)))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(d.text())
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(d.text()))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(d.IntN(4) == 0)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	default:
		return protoreflect.ValueOfInt64(n)
	}
}
