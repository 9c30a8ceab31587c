package relayed

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc/codes"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/channel"
)

// client is the connection of a client to a relay, while it has calls. As a net.Conn it has an
// address, and can be closed.
type client struct {
	net.Conn
	relay  *relay
	key    string // in the relay's clients
	at     address
	ctx    context.Context // of its calls; it contains nothing of the relay
	cancel context.CancelFunc

	// Guarded by the relay's mu.
	calls map[*channel.Channel]struct{}
}

// enterLocked adds a call to those of the connection with an address. If the address does not
// identify a connection, as with a Unix socket, the call counts as a separate connection.
func (r *relay) enterLocked(c *channel.Channel, at string) *client {
	key := at
	if _, _, err := net.SplitHostPort(at); err != nil {
		key = fmt.Sprintf("%p", c)
	}
	by := r.clients[key]
	if by == nil {
		by = &client{relay: r, key: key, at: address(at), calls: make(map[*channel.Channel]struct{})}
		by.ctx, by.cancel = context.WithCancel(context.Background())
		if r.o.Account != nil {
			by.ctx = r.o.Account(by.ctx, by)
		}
		r.clients[key] = by
	}
	by.calls[c] = struct{}{}
	return by
}

func (c *client) leave(call *channel.Channel) {
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	if delete(c.calls, call); len(c.calls) == 0 {
		c.retireLocked()
	}
}

// retireLocked makes later calls of the connection start with a new client.
func (c *client) retireLocked() {
	if c.relay.clients[c.key] == c {
		delete(c.relay.clients, c.key)
	}
	c.cancel()
}

// RemoteAddr implements net.Conn.
func (c *client) RemoteAddr() net.Addr { return c.at }

// Close implements net.Conn. It ends all calls.
func (c *client) Close() error {
	c.relay.mu.Lock()
	list := make([]*channel.Channel, 0, len(c.calls))
	for call := range c.calls {
		list = append(list, call)
	}
	c.retireLocked()
	c.relay.mu.Unlock()
	for _, call := range list {
		call.End(&pb.RelayEnd{Code: int32(codes.Unavailable), Message: "leasehold: too many " +
			"answers are waiting for this client to read them"})
	}
	return nil
}
