package client

import "context"

// Connection describes the client's connection to a member, for status displays and readiness
// checks. Other programs do not need it, because calls already wait for a member.
type Connection struct {
	// Endpoint is the member's endpoint, as in Config.Endpoints.
	Endpoint string
	// Changed is closed when the client may have a different connection, or none.
	Changed <-chan struct{}
}

// Connection waits until the client is connected to a member. If ctx ends first, the error wraps
// ErrUnavailable and says why the last connection attempt failed.
func (c *Client) Connection(ctx context.Context) (Connection, error) {
	l, err := c.mux.get(ctx)
	if err != nil {
		return Connection{}, err
	}
	c.mux.mu.Lock()
	defer c.mux.mu.Unlock()
	now := Connection{Endpoint: c.mux.endpoints[l.place].text, Changed: c.mux.changed}
	if c.mux.link != l { // the link has already changed
		changed := make(chan struct{})
		close(changed)
		now.Changed = changed
	}
	return now, nil
}
