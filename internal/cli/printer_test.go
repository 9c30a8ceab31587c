package cli

import (
	"bytes"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

// printed returns what a format makes of an answer.
func printed(t *testing.T, format string, hex bool, a answer) string {
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

// Goal: --write-out protobuf is the message itself. Method: decode it.
func TestProtobuf(t *testing.T) {
	want := &pb.RangeResponse{
		Header: &pb.ResponseHeader{Revision: 7},
		Kvs:    []*mvccpb.KeyValue{{Key: []byte("k"), Value: []byte("\x00v\n")}},
		Count:  1,
	}
	text := printed(t, "protobuf", false, showGet((*clientv3.GetResponse)(want)))
	var got pb.RangeResponse
	if err := proto.Unmarshal([]byte(text), &got); err != nil || !proto.Equal(&got, want) {
		t.Errorf("got %v, %v", &got, err)
	}
}

// Goal: a format that an answer has no text for is an error with its own exit
// code, not silence. Method: every format on an empty answer.
func TestUnsupportedFormats(t *testing.T) {
	for _, format := range formats {
		p, err := newPrinter(format, false)
		if err != nil {
			t.Fatal(err)
		}
		err = p.print(&bytes.Buffer{}, answer{})
		if format == "json" {
			continue // every answer has JSON
		}
		if exitCode(err) != exitFeature || err.Error() != format+" not supported as output format" {
			t.Errorf("%s: %v", format, err)
		}
	}
	p, _ := newPrinter("protobuf", false)
	if err := p.print(&bytes.Buffer{}, answer{proto: 7}); exitCode(err) != exitFeature {
		t.Errorf("a value that is no message: %v", err)
	}
	if _, err := newPrinter("xml", false); exitCode(err) != exitFeature {
		t.Errorf("xml: %v", err)
	}
}

func TestAlarms(t *testing.T) {
	a := showAlarm((*clientv3.AlarmResponse)(&pb.AlarmResponse{
		Header: &pb.ResponseHeader{MemberId: 10},
		Alarms: []*pb.AlarmMember{{MemberID: 10, Alarm: pb.AlarmType_NOSPACE}},
	}))
	if got, want := printed(t, "simple", false, a), "memberID:10 alarm:NOSPACE\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	want := "\"ClusterID\" : 0\n\"MemberID\" : a\n\"RaftTerm\" : 0\n" +
		"\"MemberID\" : a\n\"AlarmType\" : NOSPACE\n\n"
	if got := printed(t, "fields", true, a); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Goal: a transaction inside a transaction, which no command line can make but
// another client may show, does not get lost. Method: each text format.
func TestNestedTxn(t *testing.T) {
	inner := &pb.TxnResponse{Succeeded: true, Responses: []*pb.ResponseOp{
		{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}},
	}}
	a := showTxn((*clientv3.TxnResponse)(&pb.TxnResponse{Responses: []*pb.ResponseOp{
		{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: inner}},
	}}))
	want := `{"responses":[{"Response":{"response_txn":{"succeeded":true,` +
		`"responses":[{"Response":{"response_put":{}}}]}}}]}` + "\n"
	if got := printed(t, "json", false, a); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, format := range []string{"simple", "fields"} {
		if got := printed(t, format, false, a); !strings.Contains(got, "response_put") {
			t.Errorf("%s: %q", format, got)
		}
	}
}
