package cli

import (
	"cmp"
	"context"
	"errors"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/cause"
)

// lookout asks the members of a cluster how they are, maybe again and again. It keeps the clients
// that it has made, so that it logs in once.
type lookout struct {
	a    *app
	spec *clientv3.ConfigSpec

	mu      sync.Mutex        // guards clients
	clients map[string]*asker // by endpoint; that of the cluster has none
}

// asker is a client, and the reason for which it had no connection.
type asker struct {
	*clientv3.Client
	why *dialError
}

func (a *app) newLookout(spec *clientv3.ConfigSpec) *lookout {
	return &lookout{a: a, spec: spec, clients: make(map[string]*asker)}
}

// client returns the client of an endpoint, or that of the cluster for none. With an error, which a
// client that logs in may have, it returns one that can only say why: see failure.
func (l *lookout) client(endpoint string) (*asker, error) {
	l.mu.Lock()
	c := l.clients[endpoint]
	l.mu.Unlock()
	if c != nil {
		return c, nil
	}
	spec, why := l.spec, &l.a.dialError
	if endpoint != "" {
		spec, why = only(l.spec, endpoint), new(dialError)
	}
	made, err := l.a.dialTelling(spec, why)
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
func (x *memberState) failed(c *asker, err error) {
	x.Cause = cmp.Or(c.why.cause(), cause.CallFailed)
	switch why := c.why.String(); {
	case needsLogin(err):
		x.Cause, x.Error = cause.LoginRequired, readable(err.Error())
	case !errors.Is(err, context.DeadlineExceeded):
		x.Error = readable(rpcPrefix.ReplaceAllString(err.Error(), ""))
	case why != "":
		x.Error = readable(why)
	default:
		x.Cause, x.Error = cause.Hangs, saysNothing
	}
}

// close ends what was made.
func (l *lookout) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.clients {
		_ = c.Close() // nothing is under way
	}
}
