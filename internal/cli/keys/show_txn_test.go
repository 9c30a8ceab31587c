package keys

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestNestedTxn checks that the results of a nested transaction are printed. The command line
// cannot create one, but responses to other clients can contain one.
func TestNestedTxn(t *testing.T) {
	inner := &pb.TxnResponse{Succeeded: true, Responses: []*pb.ResponseOp{
		{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}},
	}}
	a := showTxn((*clientv3.TxnResponse)(&pb.TxnResponse{Responses: []*pb.ResponseOp{
		{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: inner}},
	}}))
	want := `{"responses":[{"Response":{"response_txn":{"succeeded":true,` +
		`"responses":[{"Response":{"response_put":{}}}]}}}]}` + "\n"
	if got, err := a.Text("json", false); err != nil || got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, format := range []string{"simple", "fields"} {
		if got, err := a.Text(format, false); err != nil || !strings.Contains(got, "response_put") {
			t.Errorf("%s: %q", format, got)
		}
	}
}
