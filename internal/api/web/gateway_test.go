package web

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/internal/listen"
	"leasehold.dev/test/virtual"
)

const jsonHeader = `"header":{"cluster_id":"9223372036854775808","member_id":"7",` +
	`"revision":"3","raft_term":"2"}`

// TestGateway checks that requests and responses have the same form as etcd's: original names,
// bytes in base64, and absent values omitted. Requests may give 64-bit numbers as strings or
// numbers; responses use strings. Errors have a code and a message.
func TestGateway(t *testing.T) {
	s := start(t, nil)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{
			"POST", "/v3/kv/put", `{"key":"Zm9v","value":"YmFy","lease":"9007199254740993"}`, 200,
			`{` + jsonHeader + `,"prev_kv":{"key":"Zm9v","mod_revision":"9223372036854775807",` +
				`"value":"YmFy","lease":"9007199254740993"}}`,
		},
		{
			"POST", "/v3/kv/put", `{"key":"Zm9v","lease":5,"unknown":{"a":[1]}}`, 200,
			`{` + jsonHeader + `,"prev_kv":{"key":"Zm9v","mod_revision":"9223372036854775807",` +
				`"lease":"5"}}`,
		},
		{"POST", "/v3beta/kv/put", `{"key":""}`, 400, `"message":"etcdserver: key is not provided"`},
		{"POST", "/v3/kv/put", ``, 400, `{"code":3,"message":"etcdserver: key is not provided"}`},
		{
			"POST", "/v3/kv/put", `{"key":"Zm9`, 400,
			`"message":"malformed JSON in request: unexpected EOF"`,
		},
		{
			"POST", "/v3/kv/put", `hello`, 400,
			`"message":"malformed JSON in request: invalid character`,
		},
		{"POST", "/v3/kv/put", `[]`, 400, `"message":"malformed JSON in request: `},
		{"POST", "/v3/kv/put", `{"key":5}`, 400, `invalid value for bytes field key`},
		{"POST", "/v3/kv/put", `{"key":"*"}`, 400, `invalid value for bytes field key`},
		{"POST", "/v3/kv/put", `{"lease":"x"}`, 400, `invalid value for int64`},
		{"POST", "/v3/kv/put", `{"lease":99999999999999999999}`, 400, `invalid value for int64`},
		{"POST", "/v3/kv/range", `{}`, 501, `"code":12`},
		{"GET", "/v3/kv/put", ``, 501, `{"code":12,"message":"Method Not Allowed"}`},
		{"POST", "/v3/nothing", `{}`, 404, `{"code":5,"message":"Not Found"}`},
		{"GET", "/nothing", ``, 404, `{"code":5,"message":"Not Found"}`},
		{"GET", "/", ``, 404, `{"code":5,"message":"Not Found"}`},
		{
			"POST", "/v3/lease/keepalive", `{"ID":"7"} {"ID":8}`, 200,
			`{"result":{` + jsonHeader + `,"ID":"7","TTL":"9"}}` + "\n" +
				`{"result":{` + jsonHeader + `,"ID":"8","TTL":"9"}}` + "\n",
		},
		{"POST", "/v3/lease/keepalive", `{"ID":`, 400, `malformed JSON in request: unexpected EOF`},
		{
			"POST", "/v3/watch", `{"create_request":{"key":"ZmFpbA=="}}`, 200,
			`{"error":{"code":11,"message":"etcdserver: mvcc: required revision has been compacted"}}`,
		},
	} {
		got := s.ask(t, c.method, c.path, c.body)
		text := strings.ReplaceAll(got.body, "\u00a0", " ") // protojson adds these at random
		if got.status != c.status || got.kind != "application/json" || !strings.Contains(text, c.want) {
			t.Errorf("%s %s %s:\n got %d %s %s\nwant %d with %s",
				c.method, c.path, c.body, got.status, got.kind, got.body, c.status, c.want)
		}
	}
}

// TestGatewayUnknownFields checks that an unknown field in leasehold.v1 is rejected by name,
// wherever it is. etcd's messages may have unknown fields.
func TestGatewayUnknownFields(t *testing.T) {
	s := start(t, nil)
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{
			"/v1/leases/grant", `{"ttl_ms":"5000","ttl":5}`, 400,
			`leasehold.v1.GrantRequest has no field \"ttl\"`,
		},
		{
			"/v1/leases/grant", `{"ttl_ms":"5000","keys":[{"key":"YQ==","vlaue":"YQ=="}]}`, 400,
			`leasehold.v1.Pair has no field \"vlaue\"`,
		},
		{
			"/v1/store/txn", `{"success":[{"delete":{"key":"YQ=="}}]}`, 400,
			`leasehold.v1.Op has no field \"delete\"`,
		},
		{
			"/v1/store/txn", `{"compare":[],"them":[]}`, 400,
			`leasehold.v1.TxnRequest has no field \"them\"`,
		},
		{"/v1/leases/grant", `{"ttl_ms":`, 400, `malformed JSON in request: unexpected EOF`},
		{"/v1/leases/grant", `{"ttl_ms":"five"}`, 400, `malformed JSON in request: `},
		{
			"/v1/leases/events", `{"befor":"5"}`, 400,
			`leasehold.v1.EventsRequest has no field \"befor\"`,
		},
		{"/v1/leases/grant", `{"ttl_ms":5000,"requestId":"r"}`, 501, `unknown service`},
		{"/v1/leases/grant", ``, 501, `unknown service`},
		{"/v3/kv/put", `{"key":"Zm9v","more":{"a":[1]}}`, 200, `"key":"Zm9v"`},
		{"/v3/lease/keepalive", `{"ID":"7","more":1} {"ID":8,"more":1}`, 200, `"ID":"8"`},
	} {
		got := s.ask(t, "POST", c.path, c.body)
		if got.status != c.status || !strings.Contains(got.body, c.want) {
			t.Errorf("%s %s:\n got %d %s\nwant %d with %s",
				c.path, c.body, got.status, got.body, c.status, c.want)
		}
	}
}

// TestGatewayTrace checks that a call's trace context reaches the member. A header that gRPC cannot
// carry is dropped without failing the call.
func TestGatewayTrace(t *testing.T) {
	s := start(t, nil)
	for _, c := range []struct{ parent, state, wantParent, wantState string }{
		{"00-1-2-01", "a=1", "00-1-2-01", "a=1"},
		{"00-1-2-01", "a=\xe9", "00-1-2-01", ""},
		{"00-\xe9-2-01", "a=1", "", "a=1"},
		{"00-1\t2-01", "a=1\t,b=2", "", ""},
	} {
		for key, want := range map[string]string{"parent": c.wantParent, "state": c.wantState} {
			body := `{"key":"` + base64.StdEncoding.EncodeToString([]byte(key)) + `"}`
			got := s.ask(t, "POST", "/v3/kv/put", body, "Traceparent", c.parent, "Tracestate", c.state)
			var said struct{ Message string }
			if err := json.Unmarshal([]byte(got.body), &said); err != nil || said.Message != want ||
				got.status != http.StatusUnauthorized {
				t.Errorf("%q, %q: %d %s, want %q", c.parent, c.state, got.status, got.body, want)
			}
		}
	}
}

// TestGatewayTooMany checks that the memory for incomplete JSON requests is bounded.
func TestGatewayTooMany(t *testing.T) {
	s := start(t, func(o *Options) {
		o.Requests = listen.NewStrangers(256<<10, slog.New(slog.DiscardHandler))
	})
	for size, want := range map[int]int{
		100 << 10: http.StatusOK, 1 << 20: http.StatusTooManyRequests, 1 << 10: http.StatusOK,
	} {
		got := s.ask(t, "POST", "/v3/kv/put", `{"key":"`+strings.Repeat("YWFh", size/4)+`"}`)
		if got.status != want {
			t.Errorf("%d bytes: %d %.200s", size, got.status, got.body)
		}
	}
}

// TestGatewayBound checks that a gateway call carries the name that listen.Answers assigned to its
// request, and never a name made up by a client.
func TestGatewayBound(t *testing.T) {
	answers := listen.NewAnswers(slog.New(slog.DiscardHandler))
	s := start(t, func(o *Options) { o.Bound = answers.Handler })
	got := s.ask(t, "POST", "/v3/kv/put", `{"key":"dmlzaXQ="}`,
		"Grpc-Metadata-Leasehold-Visit", "of the client")
	if ok, _ := regexp.MatchString(`"message":"[A-Z2-7]{26}"`, got.body); !ok {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestGatewayAddress checks that a gateway client cannot forge its address, which the audit log
// records. It tries every header from which the library builds x-forwarded-for; api.Address uses
// the last address.
func TestGatewayAddress(t *testing.T) {
	mux := runtime.NewServeMux()
	for remote, want := range map[string]string{"@": "", "192.0.2.7:99": "192.0.2.7"} {
		r := httptest.NewRequest("POST", "/x", nil)
		r.RemoteAddr = remote
		for _, name := range []string{"X-Forwarded-For", "Grpc-Metadata-X-Forwarded-For"} {
			r.Header.Set(name, "6.6.6.6")
		}
		dropForgedAddress(r)
		ctx, err := runtime.AnnotateContext(t.Context(), mux, r, "x")
		if err != nil {
			t.Fatal(err)
		}
		md, _ := metadata.FromOutgoingContext(ctx)
		list := strings.Split(strings.Join(md.Get("x-forwarded-for"), ","), ",")
		if last := strings.TrimSpace(list[len(list)-1]); last != want {
			t.Errorf("from %s the address is %q, not %q, of %q", remote, last, want, list)
		}
	}
}

// TestGatewayTooLarge checks that an oversized request is rejected early, with or without a length.
// The largest request that gRPC can carry is accepted.
func TestGatewayTooLarge(t *testing.T) {
	s := start(t, nil)
	ok := `{"key":"YQ==","value":"` + base64.StdEncoding.EncodeToString(make([]byte, 1<<20)) + `"}`
	if got := s.ask(t, "POST", "/v3/kv/put", ok); got.status != http.StatusOK {
		t.Errorf("1 MiB: %d %.200s", got.status, got.body)
	}
	long := `{"key":"` + strings.Repeat("A", 3<<20) + `"}`
	unknownLength := io.MultiReader(strings.NewReader(long))
	for name, body := range map[string]io.Reader{
		"told": strings.NewReader(long), "chunked": unknownLength,
	} {
		resp, err := http.Post(s.url+"/v3/kv/put", "application/json", body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge ||
			!strings.Contains(string(text), `{"code":8,"message":"web: request body is too large"}`) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, text)
		}
	}
}

// postPart sends part of a body with the given length and returns the answer.
func (s *site) postPart(
	t *testing.T, path string, length int, part string,
) (code int, text string) {
	t.Helper()
	conn, err := s.dial(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\n"+
		"Content-Length: %d\r\n\r\n%s", path, length, part)
	if err != nil {
		t.Fatal(err)
	}
	got, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(got.Body)
	return got.StatusCode, string(b)
}

// TestGatewayStreamTooLarge checks that an oversized message on a stream is rejected with the
// proper code. The test sends only as much as the server reads, so that the connection is not
// reset.
func TestGatewayStreamTooLarge(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxRequestBytes = 1 })
	const begun, limit = `{"more":"`, 2 + 64<<10
	for _, path := range []string{"/v3/watch", "/v3/lease/keepalive"} {
		code, text := s.postPart(t, path, 99999, begun+strings.Repeat("A", limit-len(begun)))
		if code != http.StatusTooManyRequests || !strings.Contains(text,
			`{"error":{"code":8,"message":"web: request body is too large"}}`) {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
}

// TestGatewayHalfOpen checks that a client that sends no body, or only half of it, is disconnected.
// Once the whole body has arrived, a request may take as long as the member needs.
func TestGatewayHalfOpen(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		s := startOn(t, virtual.Port(t), virtual.Dial, func(o *Options) { o.bodyTimeout = time.Second })
		for _, c := range []struct{ path, part string }{
			{"/v3/kv/put", ""}, {"/v3/kv/put", "{"}, {"/v3/kv/put", `{"key":"YQ=="}`}, {"/v3/watch", "{"},
		} {
			code, text := s.postPart(t, c.path, 99, c.part)
			if code != http.StatusBadRequest ||
				!strings.Contains(text, `{"code":3,"message":"web: request body did not`) {
				t.Errorf("%v: %d %s", c, code, text)
			}
		}
		d := watch(t, s)
		time.Sleep(2 * time.Second) // longer than the limit, which must have been lifted
		if _, err := io.WriteString(d.send, `{"create_request":{"key":"Yg=="}}`); err != nil {
			t.Fatal(err)
		}
		d.expect(`"key":"Yg=="`)
	})
}

// duplex is a watch over JSON whose requests are sent one at a time.
type duplex struct {
	t    *testing.T
	send *io.PipeWriter
	out  *bufio.Reader
	body io.Closer
}

func watch(t *testing.T, s *site) *duplex {
	t.Helper()
	in, send := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v3/watch", in)
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() {
		_, err := io.WriteString(send, `{"create_request":{"key":"YQ=="}}`)
		first <- err
	}()
	transport := &http.Transport{DialContext: s.dial}
	t.Cleanup(transport.CloseIdleConnections)
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	d := &duplex{t, send, bufio.NewReader(resp.Body), resp.Body}
	t.Cleanup(func() { _ = send.Close(); _ = resp.Body.Close() })
	d.expect(`"key":"YQ=="`)
	return d
}

func (d *duplex) expect(part string) {
	d.t.Helper()
	line, err := d.out.ReadString('\n')
	if err != nil || !strings.Contains(line, part) {
		d.t.Fatalf("line %q, %v, want one with %s", line, err, part)
	}
}

// TestGatewayDuplex checks that a stream's responses are flushed individually while the client
// keeps sending. The size limit applies to each message. When a client disconnects, the member's
// stream ends.
func TestGatewayDuplex(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxRequestBytes = 1 }) // a limit of 64 KiB of JSON
	d := watch(t, s)
	key := strings.Repeat("Yg==", 1) + `"` // "b" in base64
	filler := `,"range_end":"` + strings.Repeat("A", 60<<10) + `"`
	for range 4 { // 240 KiB in total
		if _, err := io.WriteString(d.send, `{"create_request":{"key":"`+key+filler+`}}`); err != nil {
			t.Fatal(err)
		}
		d.expect(`"key":"Yg=="`)
	}
	_ = d.body.Close()
	_ = d.send.Close()
	if err := <-s.fake.ended; err == nil {
		t.Error("the watch did not end")
	}
}

// TestGatewayBadMessageLater checks that an invalid message in the middle of a stream is reported
// in the stream.
func TestGatewayBadMessageLater(t *testing.T) {
	s := start(t, nil)
	d := watch(t, s)
	if _, err := io.WriteString(d.send, `{"create_request":nonsense}`); err != nil {
		t.Fatal(err)
	}
	d.expect(`{"error":{"code":3,"message":"malformed JSON in request: invalid character`)
}

// FuzzDecode checks that no input makes a decoder panic or exceed its limit, and that the request
// is marked if the decoder rejects it.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"key":"Zm9v","lease":"5","prev_kv":true}`))
	f.Add([]byte(`{"key":5}`))
	f.Add([]byte(`{} {}`))
	m := &marshaler{runtime.JSONPb{
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
	}}
	const limit = 1 << 10
	f.Fuzz(func(t *testing.T, data []byte) {
		var failed error
		b := &body{
			arrived:    func(int) {},
			ReadCloser: io.NopCloser(bytes.NewReader(data)), limit: limit,
			fail: func(err error) { failed = err },
		}
		err := m.NewDecoder(b).Decode(new(pb.PutRequest))
		if err != nil && err != io.EOF && failed == nil {
			t.Fatalf("%q: %v was not marked", data, err)
		}
		if b.left < 0 {
			t.Fatalf("%q: read beyond the limit", data)
		}
	})
}

// TestJSONTakesTurns checks that decoding and encoding JSON each take a turn, whether a message is
// a complete answer or part of a stream.
func TestJSONTakesTurns(t *testing.T) {
	before := turn
	defer func() { turn = before }()
	var taken []int
	held := 0
	turn = func(bytes int) func() {
		taken = append(taken, bytes)
		held++
		return func() { held-- }
	}
	m, p := &marshaler{}, &pb.PutRequest{Key: []byte("key"), Value: make([]byte, 1000)}
	size := jsonCost * proto.Size(p)
	for what, v := range map[string]any{"an answer": p, "one of a stream": map[string]any{"result": p}} {
		taken = nil
		if _, err := m.Marshal(v); err != nil || !slices.Equal(taken, []int{size}) || held != 0 {
			t.Errorf("%s took %v, want %d; %d turns are held, %v", what, taken, size, held, err)
		}
	}
	taken = nil
	text := `{"key":"Zm9v"}`
	err := m.NewDecoder(strings.NewReader(text)).Decode(new(pb.PutRequest))
	if err != nil || !slices.Equal(taken, []int{jsonCost * len(text)}) || held != 0 {
		t.Errorf("a request took %v, %d turns are held, %v", taken, held, err)
	}
}
