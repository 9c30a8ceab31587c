// Package leaseholdgw turns JSON over HTTP into calls of leasehold.v1. It does what the code does
// that protoc-gen-grpc-gateway makes, for all methods alike: what is special about each is in its
// descriptor. It is apart from package leaseholdv1 so that a client need not have it.
package leaseholdgw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "leasehold.dev/api/leasehold/v1"
)

// Register adds a handler of each method with a path in its descriptor, which calls it over conn.
func Register(_ context.Context, mux *runtime.ServeMux, conn *grpc.ClientConn) error {
	for _, f := range []protoreflect.FileDescriptor{
		pb.File_leasehold_v1_leases_proto, pb.File_leasehold_v1_store_proto,
		pb.File_leasehold_v1_access_proto,
	} {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				if err := register(mux, conn, methods.Get(j)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// method is one that is called.
type method struct {
	mux     *runtime.ServeMux
	conn    *grpc.ClientConn
	path    string // of HTTP
	name    string // of gRPC
	in, out protoreflect.MessageType
	streams bool // it has many answers
}

func register(mux *runtime.ServeMux, conn *grpc.ClientConn, d protoreflect.MethodDescriptor) error {
	rule, _ := proto.GetExtension(d.Options(), annotations.E_Http).(*annotations.HttpRule)
	if rule.GetPost() == "" || rule.GetBody() != "*" || d.IsStreamingClient() {
		return fmt.Errorf("leaseholdgw: %s is not posted with its request as the body", d.FullName())
	}
	in, err := protoregistry.GlobalTypes.FindMessageByName(d.Input().FullName())
	if err != nil {
		return err
	}
	out, err := protoregistry.GlobalTypes.FindMessageByName(d.Output().FullName())
	if err != nil {
		return err
	}
	m := &method{
		mux: mux, conn: conn, path: rule.GetPost(), in: in, out: out, streams: d.IsStreamingServer(),
		name: "/" + string(d.Parent().FullName()) + "/" + string(d.Name()),
	}
	return mux.HandlePath(http.MethodPost, m.path, m.serve)
}

// serve answers a request.
func (m *method) serve(w http.ResponseWriter, r *http.Request, _ map[string]string) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	from, to := runtime.MarshalerForRequest(m.mux, r)
	outgoing, err := runtime.AnnotateContext(ctx, m.mux, r, m.name,
		runtime.WithHTTPPathPattern(m.path))
	if err != nil {
		runtime.HTTPError(ctx, m.mux, to, w, r, err)
		return
	}
	var md runtime.ServerMetadata
	var answer func() (proto.Message, error)
	req, err := m.read(r, from)
	if err == nil {
		answer, err = m.call(outgoing, req, &md)
	}
	ctx = runtime.NewServerMetadataContext(outgoing, md)
	if err != nil {
		runtime.HTTPError(ctx, m.mux, to, w, r, err)
		return
	}
	options := m.mux.GetForwardResponseOptions()
	if m.streams {
		runtime.ForwardResponseStream(ctx, m.mux, to, w, r, answer, options...)
		return
	}
	resp, _ := answer()
	runtime.ForwardResponseMessage(ctx, m.mux, to, w, r, resp, options...)
}

// read reads the request to the end.
func (m *method) read(r *http.Request, by runtime.Marshaler) (proto.Message, error) {
	req := m.in.New().Interface()
	if err := by.NewDecoder(r.Body).Decode(req); err != nil && !errors.Is(err, io.EOF) {
		return nil, status.Errorf(codes.InvalidArgument, "%v", err)
	}
	_, _ = io.Copy(io.Discard, r.Body) // what is wrong with the rest changes nothing
	return req, nil
}

// call calls the method. It returns what gives its answer or, one after the other, its answers.
func (m *method) call(
	ctx context.Context, req proto.Message, md *runtime.ServerMetadata,
) (answer func() (proto.Message, error), err error) {
	if !m.streams {
		resp := m.out.New().Interface()
		err := m.conn.Invoke(ctx, m.name, req, resp, grpc.StaticMethod(),
			grpc.Header(&md.HeaderMD), grpc.Trailer(&md.TrailerMD))
		return func() (proto.Message, error) { return resp, nil }, err
	}
	s, err := m.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, m.name,
		grpc.StaticMethod())
	if err == nil {
		err = s.SendMsg(req)
	}
	if err == nil {
		err = s.CloseSend()
	}
	if err == nil {
		md.HeaderMD, err = s.Header()
	}
	return func() (proto.Message, error) {
		resp := m.out.New().Interface()
		return resp, s.RecvMsg(resp)
	}, err
}
