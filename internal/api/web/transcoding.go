package web

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
)

// Transcode adds a handler to mux for each method that has an HTTP path in the given files. The
// handler translates JSON over HTTP to calls of the method over conn. The generated Go packages of
// the files must be linked, because they create the messages.
//
// Transcode replaces the code that protoc-gen-grpc-gateway generates for each method. Instead, it
// reads the differences between methods from their descriptors.
func Transcode(
	mux *runtime.ServeMux, conn grpc.ClientConnInterface, files ...protoreflect.FileDescriptor,
) error {
	for _, f := range files {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				if err := transcodeMethod(mux, conn, methods.Get(j)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// method is a method that can be called over HTTP.
type method struct {
	mux     *runtime.ServeMux
	conn    grpc.ClientConnInterface
	path    string // HTTP path
	name    string // full gRPC name
	in, out protoreflect.MessageType
	desc    grpc.StreamDesc
}

func transcodeMethod(
	mux *runtime.ServeMux, conn grpc.ClientConnInterface, d protoreflect.MethodDescriptor,
) error {
	rule, _ := proto.GetExtension(d.Options(), annotations.E_Http).(*annotations.HttpRule)
	if rule == nil {
		return nil
	}
	in, err := protoregistry.GlobalTypes.FindMessageByName(d.Input().FullName())
	if err != nil {
		return err
	}
	out, err := protoregistry.GlobalTypes.FindMessageByName(d.Output().FullName())
	if err != nil {
		return err
	}
	for _, b := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		if b.GetPost() == "" || b.GetBody() != "*" || d.IsStreamingClient() && !d.IsStreamingServer() {
			return fmt.Errorf("%s must use POST with the request as the body", d.FullName())
		}
		m := &method{
			mux: mux, conn: conn, path: b.GetPost(), in: in, out: out,
			name: "/" + string(d.Parent().FullName()) + "/" + string(d.Name()),
			desc: grpc.StreamDesc{
				ClientStreams: d.IsStreamingClient(), ServerStreams: d.IsStreamingServer(),
			},
		}
		if err := mux.HandlePath(http.MethodPost, m.path, m.serve); err != nil {
			return err
		}
	}
	return nil
}

// serve handles an HTTP request.
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
	options := m.mux.GetForwardResponseOptions()
	if !m.desc.ServerStreams {
		resp, err := m.call(outgoing, r, from, &md)
		ctx = runtime.NewServerMetadataContext(outgoing, md)
		if err != nil {
			runtime.HTTPError(ctx, m.mux, to, w, r, err)
			return
		}
		runtime.ForwardResponseMessage(ctx, m.mux, to, w, r, resp, options...)
		return
	}
	s, err := m.open(outgoing, r, from)
	if err == nil {
		md.HeaderMD, err = s.Header()
	}
	ctx = runtime.NewServerMetadataContext(outgoing, md)
	if err != nil {
		runtime.HTTPError(ctx, m.mux, to, w, r, err)
		return
	}
	runtime.ForwardResponseStream(ctx, m.mux, to, w, r, func() (proto.Message, error) {
		resp := m.out.New().Interface()
		return resp, s.RecvMsg(resp)
	}, options...)
}

// call makes a call that has a single response.
func (m *method) call(
	ctx context.Context, r *http.Request, by runtime.Marshaler, md *runtime.ServerMetadata,
) (proto.Message, error) {
	req, err := m.read(r, by)
	if err != nil {
		return nil, err
	}
	resp := m.out.New().Interface()
	err = m.conn.Invoke(ctx, m.name, req, resp, grpc.StaticMethod(),
		grpc.Header(&md.HeaderMD), grpc.Trailer(&md.TrailerMD))
	return resp, err
}

// open makes a call that has a stream of responses, and sends its requests.
func (m *method) open(
	ctx context.Context, r *http.Request, by runtime.Marshaler,
) (grpc.ClientStream, error) {
	if m.desc.ClientStreams {
		s, err := m.conn.NewStream(ctx, &m.desc, m.name, grpc.StaticMethod())
		if err == nil {
			go m.feed(s, by.NewDecoder(r.Body))
		}
		return s, err
	}
	req, err := m.read(r, by)
	if err != nil {
		return nil, err
	}
	s, err := m.conn.NewStream(ctx, &m.desc, m.name, grpc.StaticMethod())
	if err == nil {
		err = s.SendMsg(req)
	}
	if err == nil {
		err = s.CloseSend()
	}
	return s, err
}

// read reads the entire body of a call with a single request.
func (m *method) read(r *http.Request, by runtime.Marshaler) (proto.Message, error) {
	req := m.in.New().Interface()
	if err := by.NewDecoder(r.Body).Decode(req); err != nil && !errors.Is(err, io.EOF) {
		return nil, status.Errorf(codes.InvalidArgument, "%v", err)
	}
	_, _ = io.Copy(io.Discard, r.Body) // errors after the request do not matter
	return req, nil
}

// feed sends requests as they arrive. An invalid request ends the call. If the stream cannot accept
// a request, the stream itself returns the error.
func (m *method) feed(s grpc.ClientStream, from runtime.Decoder) {
	for {
		req := m.in.New().Interface()
		if from.Decode(req) != nil || s.SendMsg(req) != nil {
			break
		}
	}
	_ = s.CloseSend()
}
