package e2e

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// TestMoreConnectionsThanFiles opens 700 silent connections to a process limited to 300 files. The
// process reserves files for its own use. It keeps writing, logs the rejections, and accepts new
// clients once the connections are closed.
func TestMoreConnectionsThanFiles(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := newMember(t)
	bounded := exec.Command("sh", append([]string{
		"-c", `ulimit -n 300 && exec "$0" "$@"`, server.Path(t),
	}, m.args...)...)
	p, err := process.Start(bounded, m.log, "")
	if err != nil {
		t.Fatal(err)
	}
	m.Process = p
	c := m.client()
	if _, err := c.Put(t.Context(), "before", "1"); err != nil {
		t.Fatal(err)
	}
	var strangers []net.Conn
	for range 700 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(m.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		strangers = append(strangers, conn)
		// Send a complete handshake. A connection that sends less is closed after a while.
		_, _ = conn.Write([]byte(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	}
	large := strings.Repeat("x", 1<<20)
	for range 20 { // so that the member opens log files
		if _, err := c.Put(t.Context(), "meanwhile", large); err != nil {
			t.Fatalf("%v\n%s", err, m.Tail())
		}
	}
	for _, conn := range strangers {
		_ = conn.Close()
	}
	if _, err := m.client().Put(t.Context(), "after", "1"); err != nil {
		t.Errorf("%v\n%s", err, m.Tail())
	}
	// Read the whole log. A slow machine may write much more after that line.
	out, err := os.ReadFile(m.log)
	if err != nil || !strings.Contains(string(out), "there are 100 connections already") {
		t.Errorf("the log does not contain the refusals: %v\n%s", err, m.Tail())
	}
}
