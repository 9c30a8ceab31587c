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

// Lookout asks the members of a cluster how they are, maybe again and again. It keeps the clients
// that it has made, so that it logs in once.
type Lookout struct {
	a    *app.App
	spec *clientv3.ConfigSpec

	mu      sync.Mutex        // guards clients
	clients map[string]*asker // by endpoint; that of the cluster has none
}

// asker is a client, and the reason for which it had no connection.
type asker struct {
	*clientv3.Client
	why *app.DialError
}

// NewLookout returns a lookout of the cluster that a specification names.
func NewLookout(a *app.App, spec *clientv3.ConfigSpec) *Lookout {
	return &Lookout{a: a, spec: spec, clients: make(map[string]*asker)}
}

// client returns the client of an endpoint, or that of the cluster for none. With an error, which a
// client that logs in may have, it returns one that can only say why: see failure.
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
	made, err := l.a.DialTelling(spec, why)
	if err != nil {
		return &asker{why: why}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.clients[endpoint]; first != nil { // two members say that they have one endpoint
		_ = made.Close()
		return first, nil
	}
	c = &asker{made, why}
	l.clients[endpoint] = c
	return c, nil
}

// saysNothing is what is told of a process that takes connections, and answers no call on them.
const saysNothing = "it takes connections, but answers no call"

// failed notes why a member did not answer that takes connections. The error of a call that ran out
// of time does not say it.
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

// Close ends what was made.
func (l *Lookout) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.clients {
		_ = c.Close() // nothing is under way
	}
}
