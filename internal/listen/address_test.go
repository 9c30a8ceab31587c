package listen

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc/peer"
)

// from is a connection from an address.
type from struct {
	net.Conn
	addr net.Addr
}

// RemoteAddr implements net.Conn.
func (f from) RemoteAddr() net.Addr { return f.addr }

// Goal: the address of a call is that of its own connection of TCP, and of no other: relays and the
// gateway ask for others. Method: calls whose contexts lead to connections in each way.
func TestTCPAddress(t *testing.T) {
	all := newAnswers()
	tcp := from{addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 51334}}
	unix := from{addr: &net.UnixAddr{Net: "unix", Name: "/s"}}
	of := func(ctx context.Context, a net.Addr) context.Context {
		return peer.NewContext(ctx, &peer.Peer{Addr: a})
	}
	served := func(all *Answers, c net.Conn) net.Addr {
		out, _, err := Credentials(nil, all).ServerHandshake(c)
		if err != nil {
			t.Fatal(err)
		}
		return out.RemoteAddr()
	}
	ctx := t.Context()
	over := of(ctx, served(all, tcp))
	for name, x := range map[string]struct {
		ctx  context.Context
		want string
	}{
		"TCP":                    {over, "10.0.0.7:51334"},
		"a unix socket":          {of(ctx, served(all, unix)), ""},
		"not known":              {ctx, ""},
		"through a relay":        {of(over, &net.TCPAddr{}), ""},
		"HTTP":                   {all.ConnContext(ctx, tcp), ""},
		"through a relay's HTTP": {of(all.ConnContext(ctx, tcp), &net.TCPAddr{}), ""},
		"of another server":      {of(ctx, served(newAnswers(), tcp)), ""},
	} {
		got := "nothing"
		_, err := all.Unary(x.ctx, nil, nil, func(ctx context.Context, _ any) (any, error) {
			got = TCPAddress(ctx)
			return sized(nil), nil
		})
		if err != nil || got != x.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, x.want)
		}
	}
	if got := TCPAddress(over); got != "" {
		t.Errorf("before the call is taken: %q", got)
	}
}
