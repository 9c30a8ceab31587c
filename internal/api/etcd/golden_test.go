package etcd

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// endpoint makes the golden test run against a real etcd, so that -rewrite records its responses.
// Run one file at a time, each against a fresh etcd.
var endpoint = flag.String("etcd", "", "address of a fresh etcd to record the golden files from")

// TestEtcdGolden checks that requests whose responses were recorded from etcd 3.7.3 get the same
// responses, codes and error messages, except for IDs and the remaining time of leases.
func TestEtcdGolden(t *testing.T) {
	datadriven.Walk(t, "testdata/etcd", func(t *testing.T, path string) {
		conn := goldenConn(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "watch" {
				return goldenWatch(t, conn, d)
			}
			return goldenCall(t, conn, d.Cmd, d.Input)
		})
	})
}

func goldenConn(t *testing.T) *grpc.ClientConn {
	t.Helper()
	if *endpoint == "" {
		return serve(t, newNode(t), Options{}).conn
	}
	conn, err := grpc.NewClient(*endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// goldenCall makes one call: "Service/Method", with a request in text format.
func goldenCall(t *testing.T, conn *grpc.ClientConn, name, input string) string {
	t.Helper()
	service, method, _ := strings.Cut(name, "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(
		protoreflect.FullName("etcdserverpb." + service))
	if err != nil {
		t.Fatal(err)
	}
	m := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(method))
	req, resp := newMessage(t, m.Input()), newMessage(t, m.Output())
	if err := prototext.Unmarshal([]byte(input), req); err != nil {
		t.Fatal(err)
	}
	path := "/etcdserverpb." + name
	if !m.IsStreamingServer() {
		if err := conn.Invoke(ctx10(t), path, req, resp); err != nil {
			return goldenError(err)
		}
		return goldenText(resp) + "\n"
	}
	s, err := conn.NewStream(ctx10(t), &grpc.StreamDesc{ServerStreams: true}, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.SendMsg(req), s.CloseSend()); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for {
		err := s.RecvMsg(resp)
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		if err != nil {
			return out.String() + goldenError(err)
		}
		out.WriteString(goldenText(resp) + "\n")
	}
}

// goldenWatch opens a watch stream and sends each line on it. The number at the start of a line is
// the number of responses that goldenWatch reads after sending it.
func goldenWatch(t *testing.T, conn *grpc.ClientConn, d *datadriven.TestData) string {
	t.Helper()
	s, err := pb.NewWatchClient(conn).Watch(ctx10(t))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(d.Input) {
		var n int
		count, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := fmt.Sscanf(count, "%d", &n); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, "/") && !strings.Contains(text, ":") ||
			strings.HasPrefix(text, "KV/") {
			name, input, _ := strings.Cut(text, " ")
			goldenCall(t, conn, name, input)
		} else {
			var req pb.WatchRequest
			if err := prototext.Unmarshal([]byte(text), &req); err != nil {
				t.Fatal(err)
			}
			if err := s.Send(&req); err != nil {
				t.Fatal(err)
			}
		}
		for range n {
			resp, err := s.Recv()
			if err != nil {
				return out.String() + goldenError(err)
			}
			out.WriteString(goldenText(resp) + "\n")
		}
	}
	return out.String()
}

func newMessage(t *testing.T, d protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	mt, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return mt.New().Interface()
}

func goldenError(err error) string {
	s := status.Convert(err)
	return fmt.Sprintf("%v: %s\n", s.Code(), s.Message())
}

// goldenText returns a message as text, without the fields that differ between clusters.
func goldenText(m proto.Message) string {
	m = proto.Clone(m)
	if h, ok := m.(interface{ GetHeader() *pb.ResponseHeader }); ok && h.GetHeader() != nil {
		h.GetHeader().ClusterId, h.GetHeader().MemberId, h.GetHeader().RaftTerm = 0, 0, 0
	}
	switch m := m.(type) {
	case *pb.DowngradeResponse:
		m.Version = "" // the cluster version, which differs from etcd's
	case *pb.LeaseTimeToLiveResponse:
		if m.TTL >= m.GrantedTTL-2 && m.TTL >= 0 {
			m.TTL = m.GrantedTTL
		}
	case *pb.HashKVResponse:
		m.Hash = 0
	case *pb.RangeStreamResponse:
		if h := m.RangeResponse.Header; h != nil {
			h.ClusterId, h.MemberId, h.RaftTerm = 0, 0, 0
		}
	}
	// The text format deliberately varies its whitespace.
	return "ok: " + strings.Join(strings.Fields(prototext.MarshalOptions{}.Format(m)), " ")
}
