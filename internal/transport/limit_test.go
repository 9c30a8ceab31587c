package transport

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"leasehold.dev/internal/listen"
	"leasehold.dev/test/virtual"
)

// TestMembersBeforeStrangers checks that silent connections do not keep members out, both before
// and after a member has identified itself.
func TestMembersBeforeStrangers(t *testing.T) { virtual.Test(t, testMembersBeforeStrangers) }

func testMembersBeforeStrangers(t *testing.T) {
	limit := listen.NewLimit(1, "", slog.New(slog.DiscardHandler))
	limit.CloseStrangers(time.Hour)
	a := start(t, 1, options{limit: limit})
	silent := func() net.Conn {
		c, err := virtual.Dial(t.Context(), "tcp", a.url.Host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ended := func(c net.Conn) {
		t.Helper()
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || err != io.EOF && isTimeout(err) {
			t.Errorf("the connection stays: %v", err)
		}
	}
	first := silent()
	b := start(t, 2, options{})
	b.Update([]Peer{a.peer(1), b.peer(2)})
	b.meet(a, "hello")
	ended(first)
	ended(silent())
	b.meet(a, "still here")
	if len(b.gone)+len(b.unreachable) > 0 {
		t.Error("the member's connection broke")
	}
}

func isTimeout(err error) bool {
	n, ok := err.(net.Error)
	return ok && n.Timeout()
}
