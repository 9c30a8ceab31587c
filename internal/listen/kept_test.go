package listen

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// keeper returns a Kept for a call over a connection, and the client's end of the connection.
func keeper(t *testing.T, all *Answers) (*Kept, net.Conn) {
	client, server := net.Pipe()
	t.Cleanup(func() { _ = server.Close() })
	return &Kept{account: all.account(server)}, client
}

// TestKeptRequestsWait checks that requests wait until a connection has room, except small ones.
func TestKeptRequestsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		k, _ := keeper(t, all)
		k.Add(maxUnread)
		if _, _, err := k.Hold(t.Context(), smallAnswer-1); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := k.Hold(ctx, largeAnswer); err == nil {
			t.Error("a request does not wait for room")
		}
		go k.Add(-maxUnread)
		added, release, err := k.Hold(t.Context(), largeAnswer)
		if err != nil {
			t.Fatal(err)
		}
		if n := all.bytes(); n != largeAnswer {
			t.Errorf("%d bytes are counted", n)
		}
		k.Add(largeAnswer)
		if added(largeAnswer); all.bytes() != largeAnswer {
			t.Errorf("%d bytes are counted once they are queued", all.bytes())
		}
		if release(); all.bytes() != largeAnswer {
			t.Errorf("%d bytes are counted after the release", all.bytes())
		}
		if k.Add(-largeAnswer); all.bytes() != 0 {
			t.Errorf("%d bytes are left", all.bytes())
		}
	})
}

// TestKeptByManyCalls checks that a connection is closed if its calls together far exceed the
// limit, no matter how little each call keeps.
func TestKeptByManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		k, client := keeper(t, all)
		other, _ := keeper(t, all)
		other.Add(maxUnread)
		for range 2*maxUnread/keptStep + 1 {
			(&Kept{account: k.account}).Add(keptStep)
		}
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is open")
		}
		if n := all.bytes(); n != maxUnread {
			t.Errorf("%d bytes are counted for the other", n)
		}
	})
}
