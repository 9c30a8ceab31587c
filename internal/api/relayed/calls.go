package relayed

import (
	"strings"

	"google.golang.org/grpc"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/channel"
)

// Calls is a gRPC server whose methods can also be called by relays.
type Calls struct {
	*grpc.Server
	methods map[string]method
}

// method is a method of a service. Exactly one of unary and stream is set.
type method struct {
	name   string // "/" service "/" method
	impl   any
	unary  *grpc.MethodDesc
	stream *grpc.StreamDesc
}

// NewCalls returns a Calls without methods. Register services with the Calls, not with s.
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

// hasService reports whether the service in a full method name exists.
func (c *Calls) hasService(name string) bool {
	service, _, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	_, ok := c.GetServiceInfo()[service]
	return ok
}

// A Keeper keeps groups of leases alive for relays. TakeGroups makes the Keeper handle the group
// messages of a link until end is called. The link must not be running yet.
type Keeper interface {
	TakeGroups(l *channel.Link) (end func())
}

// takeGroups calls TakeGroups of the stream service, if that service is registered.
func (c *Calls) takeGroups(l *channel.Link) (end func()) {
	k, ok := c.methods[pb.StreamService_Open_FullMethodName].impl.(Keeper)
	if !ok {
		return func() {}
	}
	return k.TakeGroups(l)
}
