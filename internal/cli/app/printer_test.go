package app

import (
	"bytes"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

// printed returns an answer as printed in the given format.
func printed(t *testing.T, format string, hex bool, a Answer) string {
	t.Helper()
	p, err := newPrinter(format, hex)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.print(&b, a); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestProtobuf checks that --write-out protobuf prints the encoded message itself.
func TestProtobuf(t *testing.T) {
	want := &pb.RangeResponse{
		Header: &pb.ResponseHeader{Revision: 7},
		Kvs:    []*mvccpb.KeyValue{{Key: []byte("k"), Value: []byte("\x00v\n")}},
		Count:  1,
	}
	text := printed(t, "protobuf", false, ShowGet((*clientv3.GetResponse)(want)))
	var got pb.RangeResponse
	if err := proto.Unmarshal([]byte(text), &got); err != nil || !proto.Equal(&got, want) {
		t.Errorf("got %v, %v", &got, err)
	}
}

// TestUnsupportedFormats checks that if a response does not support the format, the result is an
// error with its own exit code instead of empty output.
func TestUnsupportedFormats(t *testing.T) {
	for _, format := range formats {
		p, err := newPrinter(format, false)
		if err != nil {
			t.Fatal(err)
		}
		err = p.print(&bytes.Buffer{}, Answer{JSON: 7})
		if format == "json" {
			continue // every answer supports JSON
		}
		if ExitCode(err) != ExitFeature || err.Error() != format+" not supported as output format" {
			t.Errorf("%s: %v", format, err)
		}
	}
	p, _ := newPrinter("protobuf", false)
	if err := p.print(&bytes.Buffer{}, Answer{JSON: 7, Proto: 7}); ExitCode(err) != ExitFeature {
		t.Errorf("a value that is no message: %v", err)
	}
	if _, err := newPrinter("xml", false); ExitCode(err) != ExitFeature {
		t.Errorf("xml: %v", err)
	}
}
