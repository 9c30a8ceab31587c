package relayed

import (
	"strings"

	"google.golang.org/grpc"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/channel"
)

// Calls is a gRPC server that knows how its methods are called, so that relays can.
type Calls struct {
	*grpc.Server
	methods map[string]method
}

// method is one method of a service: of one request and one response, or a stream.
type method struct {
	name   string // "/" service "/" method
	impl   any
	unary  *grpc.MethodDesc
	stream *grpc.StreamDesc
}

// NewCalls returns Calls without methods. Services are registered with it, not with the server.
func NewCalls(s *grpc.Server) *Calls {
	return &Calls{Server: s, methods: make(map[string]method)}
}

// RegisterService implements grpc.ServiceRegistrar.
func (c *Calls) RegisterService(d *grpc.ServiceDesc, impl any) {
	c.Server.RegisterService(d, impl)
	name := func(m string) string { return "/" + d.ServiceName + "/" + m }
	for i := range d.Methods {
		n := name(d.Methods[i].MethodName)
		c.methods[n] = method{name: n, impl: impl, unary: &d.Methods[i]}
	}
	for i := range d.Streams {
		n := name(d.Streams[i].StreamName)
		c.methods[n] = method{name: n, impl: impl, stream: &d.Streams[i]}
	}
}

// hasService reports whether there is a service of which a name of a method is.
func (c *Calls) hasService(name string) bool {
	service, _, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	_, ok := c.GetServiceInfo()[service]
	return ok
}

// renewer returns what takes the renewals of streams in columns, nil if there is none.
func (c *Calls) renewer() channel.Renewer {
	r, _ := c.methods[pb.StreamService_Open_FullMethodName].impl.(channel.Renewer)
	return r
}
