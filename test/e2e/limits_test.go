package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"leasehold.dev/test/tier"
)

// A limit is a request at or beyond the border of what is allowed. Its answer was
// recorded from etcd 3.7.3; run the tests against a real etcd to see that:
//
//	go test ./test/e2e -run Limits -server=etcd -serve= -foreign
type limit struct {
	name string
	call func(context.Context, limitClients) (any, error)
	// want is "OK" with what is worth telling of the answer, or the code and the text.
	want string
	// ours is what leasehold answers where it differs, and why says why it does.
	ours, why string
}

type limitClients struct {
	kv    pb.KVClient
	lease pb.LeaseClient
	watch pb.WatchClient
}

func (l *limit) expected() string {
	if l.ours != "" && !*foreignFlag {
		return l.ours
	}
	return l.want
}

func put(r *pb.PutRequest) func(context.Context, limitClients) (any, error) {
	return func(ctx context.Context, c limitClients) (any, error) {
		_, err := c.kv.Put(ctx, r)
		return "", err
	}
}

func scan(r *pb.RangeRequest) func(context.Context, limitClients) (any, error) {
	return func(ctx context.Context, c limitClients) (any, error) {
		a, err := c.kv.Range(ctx, r)
		return a.GetCount(), err
	}
}

func txn(r *pb.TxnRequest) func(context.Context, limitClients) (any, error) {
	return func(ctx context.Context, c limitClients) (any, error) {
		a, err := c.kv.Txn(ctx, r)
		return a.GetSucceeded(), err
	}
}

func grantOf(id, ttl int64) func(context.Context, limitClients) (any, error) {
	return func(ctx context.Context, c limitClients) (any, error) {
		a, err := c.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: ttl})
		return a.GetTTL(), err
	}
}

func revoke(id int64) func(context.Context, limitClients) (any, error) {
	return func(ctx context.Context, c limitClients) (any, error) {
		_, err := c.lease.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id})
		return "", err
	}
}

func timeToLive(id int64) func(context.Context, limitClients) (any, error) {
	return func(ctx context.Context, c limitClients) (any, error) {
		a, err := c.lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id})
		return a.GetTTL(), err
	}
}

func keepAlive(id int64) func(context.Context, limitClients) (any, error) {
	return func(ctx context.Context, c limitClients) (any, error) {
		s, err := c.lease.LeaseKeepAlive(ctx)
		if err == nil {
			err = s.Send(&pb.LeaseKeepAliveRequest{ID: id})
		}
		if err != nil {
			return nil, err
		}
		a, err := s.Recv()
		return a.GetTTL(), err
	}
}

func compact(revision int64) func(context.Context, limitClients) (any, error) {
	return func(ctx context.Context, c limitClients) (any, error) {
		_, err := c.kv.Compact(ctx, &pb.CompactionRequest{Revision: revision})
		return "", err
	}
}

func watchFrom(r *pb.WatchCreateRequest) func(context.Context, limitClients) (any, error) {
	return func(ctx context.Context, c limitClients) (any, error) {
		s, err := c.watch.Watch(ctx)
		if err == nil {
			err = s.Send(&pb.WatchRequest{
				RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r},
			})
		}
		if err != nil {
			return nil, err
		}
		a, err := s.Recv()
		return fmt.Sprint(a.GetCreated(), " ", a.GetCanceled(), " ", a.GetCancelReason()), err
	}
}

func putOp(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
		RequestPut: &pb.PutRequest{Key: []byte(key)},
	}}
}

// ops makes n different operations.
func ops(n int) (out []*pb.RequestOp) {
	for i := range n {
		out = append(out, putOp(fmt.Sprint("op", i)))
	}
	return out
}

func leasedPut(lease int64) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
		RequestPut: &pb.PutRequest{Key: []byte("k"), Lease: lease},
	}}
}

// comparisons makes n of them, all true.
func comparisons(n int) (out []*pb.Compare) {
	for range n {
		out = append(out, &pb.Compare{
			Key: []byte("there"), Target: pb.Compare_VERSION,
			TargetUnion: &pb.Compare_Version{Version: 1},
		})
	}
	return out
}

func nested(r *pb.TxnRequest) []*pb.RequestOp {
	return []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}}
}

const (
	maxTTL   = 9_000_000_000
	maxBytes = 3 << 19 // of a request
)

// TestLimits sends the requests over gRPC.
func TestLimits(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	conn, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(m.url, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := limitClients{pb.NewKVClient(conn), pb.NewLeaseClient(conn), pb.NewWatchClient(conn)}
	if _, err := c.kv.Put(t.Context(), &pb.PutRequest{Key: []byte("there")}); err != nil {
		t.Fatal(err)
	}
	if _, err := grantOf(77, 600)(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for i := range limits {
		l := &limits[i]
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		got, err := l.call(ctx, c)
		cancel()
		text := strings.TrimSpace(fmt.Sprint("OK ", got))
		if err != nil {
			s := status.Convert(err)
			text = fmt.Sprintf("%v: %s", s.Code(), s.Message())
		}
		if text != l.expected() {
			t.Errorf("%s:\n got %s\nwant %s\n", l.name, text, l.expected())
		}
	}
	if status, body := fetch(t, http.MethodGet, m.url+"/health", ""); status != http.StatusOK {
		t.Errorf("after it all: %d %s", status, body)
	}
}

// A jsonLimit is the same over the gateway.
type jsonLimit struct {
	name, path, body string
	want             string // status and text
	// parse says that the text is of the JSON library. Ours begins by telling what
	// it is that cannot be read.
	parse     bool
	ours, why string
}

func (l *jsonLimit) expected() string {
	switch {
	case *foreignFlag:
		return l.want
	case l.parse:
		return strings.Replace(l.want, "400 3 ", "400 3 malformed JSON in request: ", 1)
	case l.ours != "":
		return l.ours
	default:
		return l.want
	}
}

// spaces that the JSON library of both servers varies on purpose.
var spaces = regexp.MustCompile(`[\s\x{a0}]+`)

// TestJSONLimits sends requests through the gateway.
func TestJSONLimits(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	if status, body := fetch(t, http.MethodPost, m.url+"/v3/lease/grant",
		`{"ID":77,"TTL":600}`); status != http.StatusOK {
		t.Fatal(body)
	}
	for i := range jsonLimits {
		l := &jsonLimits[i]
		method, path, ok := strings.Cut(l.path, " ")
		if !ok {
			method, path = http.MethodPost, l.path
		}
		code, body := fetch(t, method, m.url+path, l.body)
		got := fmt.Sprint(code, " ", jsonText(code, body))
		if want := l.expected(); got != want {
			t.Errorf("%s:\n got %s\nwant %s\n", l.name, got, want)
		}
	}
}

// jsonText is what is worth comparing of an answer: code and message of an error,
// TTL and count of what went well.
func jsonText(code int, body string) string {
	var v struct {
		Code    *int   `json:"code"`
		Message string `json:"message"`
		Error   any    `json:"error"`
		TTL     string `json:"TTL"`
		Result  struct {
			TTL string `json:"TTL"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		return "text: " + strings.TrimSpace(spaces.ReplaceAllString(body, " "))
	}
	switch {
	case code != http.StatusOK && v.Code != nil:
		return fmt.Sprint(*v.Code, " ", spaces.ReplaceAllString(v.Message, " "))
	case v.TTL != "" || v.Result.TTL != "":
		return "TTL " + v.TTL + v.Result.TTL
	default:
		return "ok"
	}
}
