package metrics

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/intercept"
)

// Calls counts calls. It has the same metrics as go-grpc-prometheus, because they are widely used,
// including in etcd's dashboards. The library's own interceptor looks up labeled counters several
// times per call. For grants, that took 1/15 of the server's CPU time. Here, each call looks up its
// method once.
type Calls struct {
	methods sync.Map // full method name -> *Method
}

var _ prometheus.Collector = (*Calls)(nil)

// Method counts the calls of one method.
type Method struct {
	kind, service, method string
	started               atomic.Uint64
	handled               [codes.Unauthenticated + 1]atomic.Uint64
	received, sent        atomic.Uint64
}

// Begin counts the start of a unary call. The caller must call Done on the result when the call
// ends.
func (m *Calls) Begin(method string) *Method {
	s := m.of(method, "unary")
	s.started.Add(1)
	return s
}

// of returns the counters of a method.
func (m *Calls) of(full, kind string) *Method {
	if s, ok := m.methods.Load(full); ok {
		return s.(*Method)
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	s, _ := m.methods.LoadOrStore(full, &Method{kind: kind, service: service, method: method})
	return s.(*Method)
}

// Done counts the outcome of a call.
func (s *Method) Done(err error) {
	code := codes.OK
	if err != nil {
		code = status.FromContextError(err).Code()
		if st, ok := status.FromError(err); ok {
			code = st.Code()
		}
	}
	if int(code) >= len(s.handled) {
		code = codes.Unknown
	}
	s.handled[code].Add(1)
}

// Stream is an intercept.Stream.
func (m *Calls) Stream(
	stream grpc.ServerStream, info *grpc.StreamServerInfo,
) (grpc.ServerStream, intercept.Leave, error) {
	kind := "server_stream"
	if info.IsClientStream && info.IsServerStream {
		kind = "bidi_stream"
	} else if info.IsClientStream {
		kind = "client_stream"
	}
	s := m.of(info.FullMethod, kind)
	s.started.Add(1)
	return &countedStream{ServerStream: stream, stats: s}, func(err error) error {
		s.Done(err)
		return err
	}, nil
}

// countedStream counts the messages of a stream.
type countedStream struct {
	grpc.ServerStream
	stats *Method
}

// SendMsg implements grpc.ServerStream.
func (c *countedStream) SendMsg(m any) error {
	err := c.ServerStream.SendMsg(m)
	if err == nil {
		c.stats.sent.Add(1)
	}
	return err
}

// RecvMsg implements grpc.ServerStream.
func (c *countedStream) RecvMsg(m any) error {
	err := c.ServerStream.RecvMsg(m)
	if err == nil {
		c.stats.received.Add(1)
	}
	return err
}

var (
	rpcLabels  = []string{"grpc_type", "grpc_service", "grpc_method"}
	rpcStarted = prometheus.NewDesc("grpc_server_started_total",
		"Calls started on the server.", rpcLabels, nil)
	rpcHandled = prometheus.NewDesc("grpc_server_handled_total",
		"Calls completed on the server, with any outcome.", append(rpcLabels, "grpc_code"), nil)
	rpcReceived = prometheus.NewDesc("grpc_server_msg_received_total",
		"Messages received on streams.", rpcLabels, nil)
	rpcSent = prometheus.NewDesc("grpc_server_msg_sent_total",
		"Messages sent on streams.", rpcLabels, nil)
)

// Describe implements prometheus.Collector.
func (m *Calls) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rpcStarted, rpcHandled, rpcReceived, rpcSent} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Calls) Collect(out chan<- prometheus.Metric) {
	m.methods.Range(func(_, value any) bool {
		s := value.(*Method)
		labels := []string{s.kind, s.service, s.method}
		count := func(d *prometheus.Desc, n uint64, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
		}
		count(rpcStarted, s.started.Load(), labels...)
		for code := range s.handled {
			if n := s.handled[code].Load(); n > 0 {
				count(rpcHandled, n, append(labels, codes.Code(code).String())...)
			}
		}
		if s.kind != "unary" {
			count(rpcReceived, s.received.Load(), labels...)
			count(rpcSent, s.sent.Load(), labels...)
		}
		return true
	})
}
