package relayed

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc/codes"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/channel"
)

// client represents a client's connection to a relay while the connection has open calls. It is a
// net.Conn so that it has an address and can be closed.
type client struct {
	net.Conn
	relay *relay
	key   string // key in relay.clients
	at    address
	// context of the client's calls; does not derive from the relay's context
	ctx    context.Context
	cancel context.CancelFunc

	// The relay's mu guards the fields below.
	calls map[*channel.Channel]struct{}
}

// enterLocked adds a call to the client with the given address. Some addresses, such as those of
// Unix sockets, do not identify a connection. In that case, the call counts as a separate
// connection.
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

// retireLocked ensures that later calls on the connection start with a new client.
func (c *client) retireLocked() {
	if c.relay.clients[c.key] == c {
		delete(c.relay.clients, c.key)
	}
	c.cancel()
}

// RemoteAddr implements net.Conn.
func (c *client) RemoteAddr() net.Addr { return c.at }

// Close implements net.Conn. It ends all of the client's calls.
func (c *client) Close() error {
	c.relay.mu.Lock()
	list := make([]*channel.Channel, 0, len(c.calls))
	for call := range c.calls {
		list = append(list, call)
	}
	c.retireLocked()
	c.relay.mu.Unlock()
	for _, call := range list {
		call.End(&pb.RelayEnd{Code: int32(codes.Unavailable), Message: "leasehold: the " +
			"client has too many unread responses"})
	}
	return nil
}
