package client

import "context"

// Connection is what a client has to a member, for programs that want to tell people
// or a readiness check. Nothing else needs it: every call waits for a member by
// itself.
type Connection struct {
	// Endpoint is the member's, as it was configured.
	Endpoint string
	// Changed is closed when there may be another one, or none.
	Changed <-chan struct{}
}

// Connection waits until there is a connection to a member. When ctx ends before, the error
// wraps ErrUnavailable and says why the last try to connect has failed. It can be called at any
// time by any number of goroutines.
func (c *Client) Connection(ctx context.Context) (Connection, error) {
	l, err := c.mux.get(ctx)
	if err != nil {
		return Connection{}, err
	}
	c.mux.mu.Lock()
	defer c.mux.mu.Unlock()
	now := Connection{Endpoint: c.mux.endpoints[l.place].text, Changed: c.mux.changed}
	if c.mux.link != l { // it was another meanwhile, so this one has changed already
		changed := make(chan struct{})
		close(changed)
		now.Changed = changed
	}
	return now, nil
}
