package cluster

import (
	"cmp"
	"context"
	"errors"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/cli/app"
)

// Lookout queries the members of a cluster, possibly many times. It keeps its clients so that it
// logs in only once.
type Lookout struct {
	a    *app.App
	spec *clientv3.ConfigSpec

	mu      sync.Mutex        // guards clients
	clients map[string]*asker // by endpoint; "" for the whole cluster
}

// asker is a client together with the reason why it last failed to connect.
type asker struct {
	*clientv3.Client
	why *app.DialError
}

// NewLookout returns a Lookout for the cluster in spec.
func NewLookout(a *app.App, spec *clientv3.ConfigSpec) *Lookout {
	return &Lookout{a: a, spec: spec, clients: make(map[string]*asker)}
}

// client returns the client for an endpoint, or for the whole cluster if endpoint is "". A client
// that has to log in can fail here. The asker can still report the reason: see failed.
func (l *Lookout) client(endpoint string) (*asker, error) {
	l.mu.Lock()
	c := l.clients[endpoint]
	l.mu.Unlock()
	if c != nil {
		return c, nil
	}
	spec, why := l.spec, &l.a.DialError
	if endpoint != "" {
		spec, why = app.Only(l.spec, endpoint), new(app.DialError)
	}
	made, err := l.a.DialReporting(spec, why)
	if err != nil {
		return &asker{why: why}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.clients[endpoint]; first != nil { // two members claim the same endpoint
		_ = made.Close()
		return first, nil
	}
	c = &asker{made, why}
	l.clients[endpoint] = c
	return c, nil
}

// saysNothing describes a process that accepts connections but does not respond to calls.
const saysNothing = "it accepts connections, but does not respond to calls"

// failed records why a member that accepts connections did not respond. The error from a call that
// timed out does not include the reason.
func (x *Member) failed(c *asker, err error) {
	x.Cause = cmp.Or(c.why.Cause(), cause.CallFailed)
	switch why := c.why.String(); {
	case NeedsLogin(err):
		x.Cause, x.Error = cause.LoginRequired, app.Readable(err.Error())
	case !errors.Is(err, context.DeadlineExceeded):
		x.Error = app.Readable(app.RPCPrefix.ReplaceAllString(err.Error(), ""))
	case why != "":
		x.Error = app.Readable(why)
	default:
		x.Cause, x.Error = cause.Hangs, saysNothing
	}
}

// Close closes all clients.
func (l *Lookout) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.clients {
		_ = c.Close() // no calls are in flight
	}
}
