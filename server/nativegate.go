package server

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errGate refuses what leasehold.v1 does not decide yet.
var errGate = status.Error(codes.PermissionDenied, "leasehold: leasehold.v1 is not served while "+
	"access control is enabled; use etcd's API, or disable it")

// gate refuses leasehold.v1 while access control is enabled: its calls and streams do not ask yet
// what their callers may do. A stream that is open ends with its next message, either way.
func (n *node) gate(method string) error {
	if strings.HasPrefix(method, "/leasehold.v1.") && n.View().Access.Enabled() {
		return errGate
	}
	return nil
}

func (n *node) gateUnary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	if err := n.gate(info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (n *node) gateStream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	if err := n.gate(info.FullMethod); err != nil {
		return err
	}
	if strings.HasPrefix(info.FullMethod, "/leasehold.v1.") {
		stream = &gatedStream{stream, n}
	}
	return next(srv, stream)
}

// gatedStream is a stream of leasehold.v1.
type gatedStream struct {
	grpc.ServerStream
	node *node
}

// RecvMsg implements grpc.ServerStream.
func (s *gatedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.allowed()
}

// SendMsg implements grpc.ServerStream.
func (s *gatedStream) SendMsg(m any) error {
	if err := s.allowed(); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

func (s *gatedStream) allowed() error {
	if s.node.View().Access.Enabled() {
		return errGate
	}
	return nil
}
