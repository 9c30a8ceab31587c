package client

import "context"

// Connection is the client's connection to a member, for status displays and readiness checks.
// Nothing else needs it: calls wait for a member themselves.
type Connection struct {
	// Endpoint is the endpoint of the member, as in Config.Endpoints.
	Endpoint string
	// Changed is closed when the client may have another connection, or none.
	Changed <-chan struct{}
}

// Connection waits until the client is connected to a member. If ctx ends first, the error wraps
// ErrUnavailable and includes the reason why the last attempt to connect failed. It may be called
// at any time, from any goroutine.
func (c *Client) Connection(ctx context.Context) (Connection, error) {
	l, err := c.mux.get(ctx)
	if err != nil {
		return Connection{}, err
	}
	c.mux.mu.Lock()
	defer c.mux.mu.Unlock()
	now := Connection{Endpoint: c.mux.endpoints[l.place].text, Changed: c.mux.changed}
	if c.mux.link != l { // the link has changed already
		changed := make(chan struct{})
		close(changed)
		now.Changed = changed
	}
	return now, nil
}
