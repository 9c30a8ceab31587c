package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
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
		if format == "json" || format == "yaml" {
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

// Goal: YAML says what JSON says, in the same order, and no text is taken for a number or a word of
// YAML's. Method: a value of each kind; a second answer is a second document.
func TestYAML(t *testing.T) {
	p, err := newPrinter("yaml", false)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, text := range []string{
		`{"z":18446744073709551615,"a":-1.5,"m":[true,null,{}],"t":["yes","7","a: b","","é\n"],"e":[]}`,
		`"- x"`,
	} {
		if err := p.print(&out, answer{json: json.RawMessage(text)}); err != nil {
			t.Fatal(err)
		}
	}
	const want = `z: 18446744073709551615
a: -1.5
m:
  - true
  - null
  - {}
t:
  - "yes"
  - "7"
  - 'a: b'
  - ""
  - |
    é
e: []
---
'- x'
`
	if out.String() != want {
		t.Errorf("%s", out.String())
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

func TestRootRole(t *testing.T) {
	got := printed(t, "simple", false, showRoleGet("root", &clientv3.AuthRoleGetResponse{}))
	want := "Role root\nKV Read:\n\t[, <open ended>\nKV Write:\n\t[, <open ended>\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPermissions(t *testing.T) {
	r := &pb.AuthRoleGetResponse{Perm: []*authpb.Permission{
		{PermType: authpb.Permission_READ, Key: []byte("a")},
		{PermType: authpb.Permission_WRITE, Key: []byte("b"), RangeEnd: []byte("c")},
		{PermType: authpb.Permission_READWRITE, Key: []byte("d"), RangeEnd: []byte("f")},
		{PermType: authpb.Permission_READWRITE, Key: []byte("g"), RangeEnd: []byte{0}},
	}}
	got := printed(t, "simple", false, showRoleGet("r", (*clientv3.AuthRoleGetResponse)(r)))
	want := "Role r\nKV Read:\n\ta\n\t[d, f)\n\t[g, <open ended>\n" +
		"KV Write:\n\t[b, c) (prefix b)\n\t[d, f)\n\t[g, <open ended>\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHealth(t *testing.T) {
	a := showHealth([]health{
		{Endpoint: "a:1", Health: true, Took: "1ms"},
		{Endpoint: "b:1", Took: "2ms", Error: "no"},
	})
	want := "a:1 is healthy: successfully committed proposal: took = 1ms\n"
	if got := printed(t, "simple", false, a); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	want = `[{"endpoint":"a:1","health":true,"took":"1ms"},` +
		`{"endpoint":"b:1","health":false,"took":"2ms","error":"no"}]` + "\n"
	if got := printed(t, "json", false, a); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Goal: what a new member must be started with, and ids in hexadecimal. Method:
// the answer to adding a second member.
func TestMemberAdd(t *testing.T) {
	m2 := &pb.Member{ID: 0xabc, PeerURLs: []string{"http://b:1", "http://b:2"}}
	r := &pb.MemberAddResponse{
		Header: &pb.ResponseHeader{ClusterId: 0x1234567890abcdef, MemberId: 1, RaftTerm: 2},
		Member: m2,
		Members: []*pb.Member{
			{ID: 1, Name: "m1", PeerURLs: []string{"http://a:1"}, ClientURLs: []string{"http://a:2"}},
			m2,
		},
	}
	a := showMemberAdd((*clientv3.MemberAddResponse)(r), "m2", "http://b:1,http://b:2")
	want := `Member              abc added to cluster 1234567890abcdef

ETCD_NAME="m2"
ETCD_INITIAL_CLUSTER="m1=http://a:1,m2=http://b:1,m2=http://b:2"
ETCD_INITIAL_ADVERTISE_PEER_URLS="http://b:1,http://b:2"
ETCD_INITIAL_CLUSTER_STATE="existing"
`
	if got := printed(t, "simple", false, a); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want = `{"header":{"cluster_id":"1234567890abcdef","member_id":"1","raft_term":2},` +
		`"member":{"ID":"abc","peerURLs":["http://b:1","http://b:2"]},` +
		`"members":[{"ID":"1","name":"m1","peerURLs":["http://a:1"],"clientURLs":["http://a:2"]},` +
		`{"ID":"abc","peerURLs":["http://b:1","http://b:2"]}]}` + "\n"
	if got := printed(t, "json", true, a); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	m2.IsLearner = true
	if got := printed(t, "simple", false, a); !strings.Contains(got, "abc added as learner to ") {
		t.Errorf("got %s", got)
	}
}
