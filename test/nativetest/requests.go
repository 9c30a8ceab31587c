// Package nativetest helps tests make every request of leasehold.v1 as every principal. It contains
// the requests, generated from the descriptors, and the principals with their permissions.
package nativetest

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
)

// Subject is the target of the requests: a lease owned by "owner", and a prefix for keys and names.
type Subject struct {
	Lease  *pb.LeaseRef
	Below  string // ends with a slash
	Secret []byte
}

// Key returns the key that the requests use.
func (s Subject) Key() []byte { return []byte(s.Below + "k") }

// Name returns the name of the lease.
func (s Subject) Name() string { return s.Below + "2" }

func (s Subject) end() []byte { return []byte(s.Below[:len(s.Below)-1] + "0") }

// samples returns one request of each type.
func (s Subject) samples() []proto.Message {
	key, start := s.Key(), []byte(s.Below)
	put := []*pb.Op{{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: key}}}}
	return []proto.Message{
		&pb.GrantRequest{TtlMs: 5000, Name: s.Below + "new"},
		&pb.RenewRequest{Leases: []*pb.LeaseRef{s.Lease}},
		&pb.RevokeRequest{Leases: []*pb.LeaseRef{s.Lease}},
		&pb.DescribeRequest{Name: s.Name(), Keys: true},
		&pb.ListRequest{Keys: true, Ids: []int64{s.Lease.Id}},
		&pb.ChangeTTLRequest{Lease: s.Lease, TtlMs: 4000},
		&pb.HandOverRequest{Lease: s.Lease, Owner: "next"},
		&pb.ResumeRequest{Name: s.Name(), Secret: s.Secret},
		&pb.AttachRequest{Lease: s.Lease, Keys: [][]byte{key}},
		&pb.DetachRequest{Keys: [][]byte{key}},
		&pb.CheckTokenRequest{Name: s.Name(), Token: s.Lease.Token},
		&pb.EventsRequest{}, &pb.PutRequest{Key: key, PrevKv: true},
		&pb.DeleteRequest{Key: key, PrevKv: true},
		&pb.RangeRequest{Key: start, RangeEnd: s.end()},
		&pb.TxnRequest{Failure: put, Success: put},
		&pb.WatchRequest{Key: start, RangeEnd: s.end()},
		&pb.SessionRequest{Nonce: 7}, &pb.CacheRequest{Lease: s.Lease}, &pb.CacheAck{Lease: s.Lease},
		&pb.GrantNamesRequest{Permission: &pb.NamePermission{
			Role: "spare", Kind: pb.NamePermission_KIND_SEE, Name: "a/", Prefix: true,
		}},
		&pb.RevokeNamesRequest{Role: "spare", Name: "a/", Prefix: true}, &pb.ListNamesRequest{},
		&pb.SetLimitsRequest{Limits: &pb.Limits{Role: "spare", Limits: []*pb.Limit{
			{Resource: pb.Limit_RESOURCE_LEASES, Max: 1000},
		}}},
		&pb.ListLimitsRequest{}, &pb.ListBindingsRequest{}, &pb.WhoAmIRequest{},
	}
}

// Request is one request together with the method or field that declares it.
type Request struct {
	Method protoreflect.MethodDescriptor // nil for a request available only on streams
	Field  protoreflect.FieldDescriptor  // nil for a request not available on streams
	Needs  pb.Needs
	Body   proto.Message
}

// Requests returns all requests of leasehold.v1, keyed by message name, with their needs. It reads
// them from the descriptors. It returns an error if a request type has no sample.
func Requests(of Subject) (map[string]Request, error) {
	samples := make(map[protoreflect.Name]proto.Message)
	for _, m := range of.samples() {
		samples[m.ProtoReflect().Descriptor().Name()] = m
	}
	all := make(map[string]Request)
	add := func(name protoreflect.Name, r Request) error {
		var ok bool
		if r.Body, ok = samples[name]; !ok {
			return fmt.Errorf("no sample of %s exists: add one", name)
		}
		all[string(name)] = r
		return nil
	}
	for _, f := range []protoreflect.FileDescriptor{
		pb.File_leasehold_v1_leases_proto, pb.File_leasehold_v1_store_proto,
		pb.File_leasehold_v1_access_proto, pb.File_leasehold_v1_stream_proto,
	} {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				if m.IsStreamingClient() {
					continue // the loop over bodies adds its requests
				}
				needs := proto.GetExtension(m.Options(), pb.E_CallNeeds).(pb.Needs)
				if err := add(m.Input().Name(), Request{Method: m, Needs: needs}); err != nil {
					return nil, err
				}
			}
		}
	}
	for i := range bodies.Len() {
		f := bodies.Get(i)
		if f.Message() == nil || f.Name() == "cache_ack" {
			continue // cancel and acknowledge have no response
		}
		r, ok := all[string(f.Message().Name())]
		if r.Field = f; !ok {
			r.Needs = proto.GetExtension(f.Options(), pb.E_RequestNeeds).(pb.Needs)
		}
		if err := add(f.Message().Name(), r); err != nil {
			return nil, err
		}
	}
	return all, nil
}

var bodies = new(pb.Request).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()

// OnStream returns a stream request with the given body.
func OnStream(body proto.Message) *pb.Request {
	r := &pb.Request{}
	for i := range bodies.Len() {
		if f := bodies.Get(i); f.Message() == body.ProtoReflect().Descriptor() {
			r.ProtoReflect().Set(f, protoreflect.ValueOfMessage(body.ProtoReflect()))
		}
	}
	return r
}

// Refused reports whether an error, or a result for a lease in a response, is a denial. It returns
// any other error.
func Refused(m proto.Message, err error) (bool, error) {
	code := status.Code(err)
	if code == codes.PermissionDenied || code == codes.Unauthenticated {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	reasons := make(map[pb.Reason]bool)
	switch m := m.(type) {
	case *pb.RenewResponse:
		for _, r := range m.Results {
			reasons[r.Reason] = true
		}
	case *pb.RevokeResponse:
		for _, r := range m.Results {
			reasons[r.Reason] = true
		}
	}
	denied, out := pb.Reason_REASON_PERMISSION_DENIED, pb.Reason_REASON_UNAUTHENTICATED
	return reasons[denied] || reasons[out], nil
}

// RefusedJSON is Refused for a response from the gateway.
func RefusedJSON(code int, text string) (bool, error) {
	for _, sign := range []string{`"code":7`, `"code":16`, "PERMISSION_DENIED", "UNAUTHENTICATED"} {
		if strings.Contains(strings.ReplaceAll(text, " ", ""), sign) {
			return true, nil
		}
	}
	if code != http.StatusOK {
		return false, fmt.Errorf("%d: %s", code, text)
	}
	return false, nil
}

// Path returns the path of the request on the gateway.
func (r Request) Path() string {
	return proto.GetExtension(r.Method.Options(), annotations.E_Http).(*annotations.HttpRule).GetPost()
}

// Call makes a single request and returns the first response.
func (r Request) Call(ctx context.Context, c grpc.ClientConnInterface) (proto.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	name := fmt.Sprintf("/%s/%s", r.Method.Parent().FullName(), r.Method.Name())
	kind, err := protoregistry.GlobalTypes.FindMessageByName(r.Method.Output().FullName())
	if err != nil {
		return nil, err
	}
	out := kind.New().Interface()
	if !r.Method.IsStreamingServer() {
		return out, c.Invoke(ctx, name, r.Body, out)
	}
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, name)
	if err == nil {
		_ = s.SendMsg(r.Body) // ignore the error, because RecvMsg returns the stream's error
		err = s.RecvMsg(out)
	}
	return out, err
}

// Ask sends a message with one request on a stream and returns the first response.
func Ask(s pb.StreamService_OpenClient, m *pb.ClientMessage) (proto.Message, error) {
	// Ignore the error. If the stream has already ended, Recv returns the reason.
	_ = s.Send(m)
	for {
		m, err := s.Recv()
		if err != nil {
			return nil, err
		}
		for _, r := range m.Responses {
			if e := r.GetError(); e != nil {
				return nil, api.MessageError(e)
			}
			body := r.ProtoReflect().WhichOneof(r.ProtoReflect().Descriptor().Oneofs().Get(0))
			if body == nil {
				return nil, nil
			}
			return r.ProtoReflect().Get(body).Message().Interface(), nil
		}
	}
}
