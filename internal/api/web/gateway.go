package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	leaseholdv1 "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/listen"
)

// services lists the services that the gateway serves: the etcd services, including lock and
// election, and the leasehold.v1 services.
var services = []protoreflect.FileDescriptor{
	etcdserverpb.File_rpc_proto, v3lockpb.File_v3lockpb_v3lock_proto,
	v3electionpb.File_v3electionpb_v3election_proto, leaseholdv1.File_leasehold_v1_leases_proto,
	leaseholdv1.File_leasehold_v1_store_proto, leaseholdv1.File_leasehold_v1_access_proto,
}

// These errors end a request before it reaches the member.
var (
	// errTooLarge means that the JSON exceeds the size limit.
	errTooLarge = errors.New("web: request body is too large")
	// errTooMany means that incomplete requests are using too much memory.
	errTooMany = errors.New("web: too many incomplete requests")
	// errTooSlow means that the JSON did not arrive in time.
	errTooSlow = errors.New("web: request body did not arrive in time")
)

// traceOf returns the trace headers of a request. It ignores headers with values that gRPC cannot
// transmit, because they would cause the call to fail.
func traceOf(h http.Header) metadata.MD {
	md := metadata.MD{}
	for _, name := range []string{"traceparent", "tracestate"} {
		values := h.Values(name)
		if len(values) > 0 && !slices.ContainsFunc(values, unprintable) {
			md[name] = values
		}
	}
	return md
}

// unprintable reports whether text contains bytes that are not allowed in gRPC headers.
func unprintable(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// newGateway returns the JSON gateway. As in etcd, field names match the .proto files and 64-bit
// numbers are strings. The format of errors and streams is also the same.
func newGateway(o Options) (http.Handler, error) {
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.HTTPBodyMarshaler{
			Marshaler: &marshaler{runtime.JSONPb{
				MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true},
				UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
			}},
		}),
		runtime.WithMetadata(func(ctx context.Context, r *http.Request) metadata.MD {
			md, _ := metadata.FromOutgoingContext(ctx) // the mux would otherwise replace it
			return metadata.Join(md, traceOf(r.Header))
		}),
		runtime.WithErrorHandler(func(ctx context.Context, mux *runtime.ServeMux,
			m runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error,
		) {
			err = cause(r.Context(), err)
			if errors.Is(context.Cause(r.Context()), errTooLarge) {
				err = &runtime.HTTPStatusError{HTTPStatus: http.StatusRequestEntityTooLarge, Err: err}
			}
			runtime.DefaultHTTPErrorHandler(ctx, mux, m, w, r, err)
		}),
		runtime.WithStreamErrorHandler(func(ctx context.Context, err error) *status.Status {
			return status.Convert(cause(ctx, err))
		}),
	)
	if err := Transcode(mux, o.Conn, services...); err != nil {
		return nil, fmt.Errorf("web: gateway: %w", err)
	}
	return &gateway{
		mux: mux, limit: 2*o.MaxRequestBytes + 64<<10, patience: o.bodyTimeout, requests: o.Requests,
	}, nil
}

// gateway limits the body of each request and reports errors in it.
type gateway struct {
	mux      *runtime.ServeMux
	limit    int64         // bytes of JSON per message
	patience time.Duration // timeout for the first message to arrive
	requests *listen.Requests
}

// ServeHTTP implements http.Handler.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isDuplex(r.URL.Path) {
		// Responses are sent while the client is still sending. HTTP/2 allows this by default.
		_ = http.NewResponseController(w).EnableFullDuplex()
	} else if r.ContentLength > g.limit {
		writeJSON(w, http.StatusRequestEntityTooLarge,
			failure{Code: int(codes.ResourceExhausted), Message: errTooLarge.Error()})
		return
	}
	dropForgedAddress(r)
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	counted, err := g.requests.Body(w, r, func(error) { cancel(errTooMany) })
	if err != nil {
		s := status.Convert(err)
		writeJSON(w, http.StatusTooManyRequests, failure{Code: int(s.Code()), Message: s.Message()})
		return
	}
	defer counted.Done()
	// A deadline on the connection would not suffice, because net/http would cancel the request
	// without giving the reason.
	late := time.AfterFunc(g.patience, func() {
		cancel(errTooSlow)
		counted.Interrupt()
	})
	defer late.Stop()
	r = r.WithContext(ctx)
	ended := make(chan struct{})
	defer close(ended)
	r.Body = &body{
		ended:      ended,
		ReadCloser: counted, limit: g.limit, left: g.limit, fail: cancel,
		duplex: isDuplex(r.URL.Path), begun: func() { late.Reset(g.patience) },
		arrived: func(rest int) { late.Stop(); counted.Taken(rest) },
	}
	g.mux.ServeHTTP(w, r)
}

// dropForgedAddress removes the header that a client on a Unix socket could use to forge its
// address. On other connections, the library appends the address of the connection to the header,
// but a Unix socket has no address.
func dropForgedAddress(r *http.Request) {
	if _, _, err := net.SplitHostPort(r.RemoteAddr); err != nil {
		r.Header.Del("X-Forwarded-For")
	}
}

// isDuplex reports whether a client can send a series of messages to the path.
func isDuplex(path string) bool {
	return path == "/v3/watch" || strings.HasSuffix(path, "/lease/keepalive")
}

// marshaler is the gateway's JSON encoding. It differs from the library's in three ways. protojson
// varies the white space between tokens from build to build, but this encoding never has any. A
// decoder reports errors to the request's body, because the gateway drops stream errors. Unknown
// fields are rejected in leasehold.v1 messages, because a misspelled condition or TTL would
// otherwise be ignored. They are allowed in etcd messages, as in etcd.
type marshaler struct{ runtime.JSONPb }

// Marshal implements runtime.Marshaler.
func (m *marshaler) Marshal(v any) ([]byte, error) {
	message := v
	if stream, ok := v.(map[string]any); ok {
		message = stream["result"]
	}
	if p, ok := message.(proto.Message); ok {
		defer turn(jsonCost * proto.Size(p))()
	}
	data, err := m.JSONPb.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Grow(len(data))
	if err := json.Compact(&out, data); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// NewDecoder implements runtime.Marshaler.
func (m *marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	dec := &decoder{marshaler: m, r: r}
	b, ok := r.(*body)
	if !ok {
		return dec
	}
	return runtime.DecoderFunc(func(v any) error { return b.decode(dec, v) })
}

// jsonCost is the cost of one byte of JSON relative to one byte of a binary message.
const jsonCost = 8

// turn is replaced by tests.
var turn = listen.Turn

// ours is the package prefix of our own messages.
const ours = "leasehold."

// decoder decodes messages of any type. Depending on the type, unknown fields are allowed or
// rejected.
type decoder struct {
	*marshaler
	r    io.Reader
	json *json.Decoder // nil before the first message; also set to nil to free its buffer
}

// Decode implements runtime.Decoder.
func (d *decoder) Decode(v any) error {
	if d.json == nil {
		d.json = json.NewDecoder(d.r)
	}
	options := d.UnmarshalOptions
	p, ok := v.(proto.Message)
	if !ok {
		return runtime.DecoderWrapper{Decoder: d.json, UnmarshalOptions: options}.Decode(v)
	}
	var text json.RawMessage
	if err := d.json.Decode(&text); err != nil {
		return err
	}
	m := p.ProtoReflect().Descriptor()
	options.DiscardUnknown = !strings.HasPrefix(string(m.FullName()), ours)
	defer turn(jsonCost * len(text))()
	err := options.Unmarshal(text, p)
	if err == nil || options.DiscardUnknown {
		return err
	}
	if unknown := findUnknown(m, text); unknown != nil {
		return unknown
	}
	return err
}

// findUnknown returns the first unknown field in a JSON message, including nested messages. It
// returns nil if there is none.
func findUnknown(m protoreflect.MessageDescriptor, text json.RawMessage) *unknownFieldError {
	var fields map[string]json.RawMessage
	if strings.HasPrefix(string(m.FullName()), "google.") || json.Unmarshal(text, &fields) != nil {
		return nil // it has its own JSON format or is not an object
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		f := m.Fields().ByJSONName(name)
		if f == nil {
			f = m.Fields().ByTextName(name)
		}
		if f == nil {
			return &unknownFieldError{message: string(m.FullName()), field: strconv.Quote(name)}
		}
		if f.Message() == nil || f.IsMap() {
			continue
		}
		values := []json.RawMessage{fields[name]}
		if f.IsList() && json.Unmarshal(fields[name], &values) != nil {
			continue
		}
		for _, v := range values {
			if unknown := findUnknown(f.Message(), v); unknown != nil {
				return unknown
			}
		}
	}
	return nil
}

// rest returns the bytes read after the end of the last message.
func (d *decoder) rest() []byte {
	if d.json == nil {
		return nil
	}
	rest, _ := io.ReadAll(d.json.Buffered()) // cannot fail, because it reads from memory
	return rest
}

// unknownFieldError means that a message has an unknown field.
type unknownFieldError struct{ message, field string }

// Error implements error.
func (e *unknownFieldError) Error() string {
	return fmt.Sprintf("%s has no field %s", e.message, e.field)
}

// cause returns the decoder's error as a gRPC status if the decoder canceled the request.
// Otherwise, it returns err.
func cause(ctx context.Context, err error) error {
	why := context.Cause(ctx)
	switch {
	case why == nil, errors.Is(why, context.Canceled), errors.Is(why, context.DeadlineExceeded):
		return err
	case errors.Is(why, errTooMany), errors.Is(why, errTooLarge):
		return status.Error(codes.ResourceExhausted, why.Error())
	}
	return status.Error(codes.InvalidArgument, why.Error())
}
