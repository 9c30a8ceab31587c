package server

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/etcd"
	"leasehold.dev/internal/api/relayed"
)

// relayedOptions are those of the calls that relays carry.
func (s *Server) relayedOptions(o etcd.Options) relayed.Options {
	out := etcd.Relayed(o)
	out.May, out.Speaks = s.node.mayRelay, s.node.speaksFor
	out.AccessChanged = s.node.AccessChanged
	return out
}

// mayRelay says why the caller of a context may not pass on what others ask for.
func (n *node) mayRelay(ctx context.Context) error {
	return n.View().Access.CheckRelay(api.CallerOf(ctx))
}

// errNotForRoot is what one is told who comes through a relay with a certificate of root's.
var errNotForRoot = status.Error(codes.PermissionDenied, "leasehold: a relay does not vouch for "+
	"certificates of principals that have the role root; ask a member, or log in")

// speaksFor says why a relay may not make a call for somebody. Of certificates, a member knows only
// what relays say: those of root it has to see itself, unless the relay is root.
func (n *node) speaksFor(relay, call context.Context) error {
	by := n.View().Access
	if token(call) == "" && by.Enabled() && api.CallerOf(call).User != "" &&
		by.IsRoot(api.CallerOf(call)) && !by.IsRoot(api.CallerOf(relay)) {
		return errNotForRoot
	}
	return nil
}
