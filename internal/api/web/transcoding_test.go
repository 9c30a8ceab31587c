package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// TestTranscode compares requests and responses with the code that protoc-gen-grpc-gateway
// generates. It uses each path of etcd's API and similar ones, with valid and invalid bodies. The
// server echoes the requests.
func TestTranscode(t *testing.T) {
	conn := echoServer(t)
	ours, theirs := runtime.NewServeMux(), runtime.NewServeMux()
	if err := Transcode(ours, conn, pb.File_rpc_proto); err != nil {
		t.Fatal(err)
	}
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		gw.RegisterKVHandler, gw.RegisterWatchHandler, gw.RegisterLeaseHandler,
		gw.RegisterClusterHandler, gw.RegisterMaintenanceHandler, gw.RegisterAuthHandler,
	} {
		if err := register(t.Context(), theirs, conn); err != nil {
			t.Fatal(err)
		}
	}
	asked := 0
	for path := range paths(pb.File_rpc_proto) {
		for _, near := range []string{path, path + "/", path + "/x", path + ":x"} {
			for _, body := range []string{
				``, `{}`, `{"key":"YQ==","ID":"7","name":"a"}`, `{} {}`, `{"ID":7}{"ID":8}`,
				`{"no":1}`, `{`, `[]`, `{} {`, `7`,
			} {
				for _, method := range []string{http.MethodPost, http.MethodGet} {
					asked++
					want := response(theirs, method, near, body)
					if got := response(ours, method, near, body); got != want {
						t.Errorf("%s %s %s:\n%s\ngenerated code:\n%s", method, near, body, got, want)
					}
				}
			}
		}
	}
	if asked < 3000 {
		t.Errorf("asked %d times only", asked)
	}
}

// TestTranscodeRefuses checks that a method that cannot be transcoded is rejected at registration.
func TestTranscodeRefuses(t *testing.T) {
	for _, rule := range []*annotations.HttpRule{
		{Pattern: &annotations.HttpRule_Get{Get: "/a"}, Body: "*"},
		{Pattern: &annotations.HttpRule_Post{Post: "/a"}},
		{
			Pattern: &annotations.HttpRule_Post{Post: "/a"}, Body: "*",
			AdditionalBindings: []*annotations.HttpRule{
				{Pattern: &annotations.HttpRule_Post{Post: "/b"}, Body: "key"},
			},
		},
	} {
		if err := Transcode(runtime.NewServeMux(), nil, fileWith(t, rule)); err == nil {
			t.Errorf("%v was registered", rule)
		}
	}
}

// paths returns the paths of a file's methods.
func paths(f protoreflect.FileDescriptor) map[string]bool {
	all := make(map[string]bool)
	for i := range f.Services().Len() {
		methods := f.Services().Get(i).Methods()
		for j := range methods.Len() {
			rule := proto.GetExtension(methods.Get(j).Options(), annotations.E_Http)
			r, _ := rule.(*annotations.HttpRule)
			if r == nil {
				continue
			}
			all[r.GetPost()] = true
			for _, b := range r.GetAdditionalBindings() {
				all[b.GetPost()] = true
			}
		}
	}
	return all
}

// fileWith returns a file with one method that has the given rule.
func fileWith(t *testing.T, rule *annotations.HttpRule) protoreflect.FileDescriptor {
	empty := emptypb.File_google_protobuf_empty_proto
	options := &descriptorpb.MethodOptions{}
	proto.SetExtension(options, annotations.E_Http, rule)
	name := "." + string(empty.Messages().Get(0).FullName())
	f, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("test.proto"), Syntax: proto.String("proto3"),
		Dependency: []string{empty.Path()},
		Service: []*descriptorpb.ServiceDescriptorProto{{
			Name: proto.String("Service"),
			Method: []*descriptorpb.MethodDescriptorProto{{
				Name: proto.String("Do"), InputType: &name, OutputType: &name, Options: options,
			}},
		}},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// response returns the complete response to a request.
func response(h http.Handler, method, path, body string) string {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "token")
	r.Header.Set("X-Forwarded-For", "192.0.2.7")
	r.Header.Set("Te", "trailers")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var out bytes.Buffer
	res := w.Result()
	if err := res.Write(&out); err != nil {
		return err.Error()
	}
	// protojson adds spaces at random.
	return strings.ReplaceAll(fmt.Sprint(out.String(), res.Trailer), " ", "")
}

// plainCodec is a codec that passes messages through unchanged.
type plainCodec struct{}

func (plainCodec) Name() string { return "plain" }

func (plainCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (plainCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

// echoServer returns a connection to a server that has all methods. It answers every request that
// does not contain an "a".
func echoServer(t *testing.T) *grpc.ClientConn {
	s := grpc.NewServer(grpc.ForceServerCodec(plainCodec{}), grpc.UnknownServiceHandler(echo))
	l := bufconn.Listen(1 << 16)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient("passthrough:///test",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return l.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func echo(_ any, s grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(s)
	md, _ := metadata.FromIncomingContext(s.Context())
	head := metadata.Pairs("called", name)
	for _, key := range slices.Sorted(maps.Keys(md)) {
		head.Append("got", key+"="+strings.Join(md[key], ","))
	}
	if err := s.SendHeader(head); err != nil {
		return err
	}
	s.SetTrailer(metadata.Pairs("end", name))
	for {
		var req []byte
		if err := s.RecvMsg(&req); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		resp := []byte{1<<3 | 2, 2, 3 << 3, byte(len(req))} // the revision in the answer's header
		if err := s.SendMsg(&resp); err != nil {
			return err
		}
		if strings.HasSuffix(name, "/Snapshot") {
			if err := s.SendMsg(&resp); err != nil {
				return err
			}
		}
		if bytes.Contains(req, []byte("a")) {
			return status.Error(codes.NotFound, string(req))
		}
	}
}
