package cli

import (
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// lookout asks the members of a cluster how they are, maybe again and again. It keeps the clients
// that it has made, so that it logs in once.
type lookout struct {
	a    *app
	spec *clientv3.ConfigSpec

	mu      sync.Mutex                  // guards clients
	clients map[string]*clientv3.Client // by endpoint; that of the cluster has none
}

func (a *app) newLookout(spec *clientv3.ConfigSpec) *lookout {
	return &lookout{a: a, spec: spec, clients: make(map[string]*clientv3.Client)}
}

// client returns the client of an endpoint, or that of the cluster for none.
func (l *lookout) client(endpoint string) (*clientv3.Client, error) {
	l.mu.Lock()
	c := l.clients[endpoint]
	l.mu.Unlock()
	if c != nil {
		return c, nil
	}
	var err error
	if endpoint == "" {
		c, err = l.a.dial(l.spec)
	} else {
		c, err = l.a.dialOne(l.spec, endpoint)
	}
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.clients[endpoint]; first != nil { // two members say that they have one endpoint
		_ = c.Close()
		return first, nil
	}
	l.clients[endpoint] = c
	return c, nil
}

// close ends what was made.
func (l *lookout) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.clients {
		_ = c.Close() // nothing is under way
	}
}
