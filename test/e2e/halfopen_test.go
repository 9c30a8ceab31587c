package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// metric returns the value of a metric without labels.
func (m *member) metric(name string) float64 {
	m.t.Helper()
	_, page := fetch(m.t, http.MethodGet, m.url+"/metrics", "")
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(page)
	if found == nil {
		m.t.Fatalf("no metric %s", name)
	}
	v, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		m.t.Fatal(err)
	}
	return v
}

// TestHalfOpenConnections: clients that connect and then say nothing, or half of
// what they must, are let go of within the time for a handshake; the others do not
// notice, and nothing is left of them.
func TestHalfOpenConnections(t *testing.T) {
	tier.Campaign(t)
	ours(t) // etcd keeps them
	t.Parallel()
	m := startMember(t)
	c := m.client()
	if _, err := c.Put(t.Context(), "warm", "up"); err != nil {
		t.Fatal(err)
	}
	goroutines, memory := m.metric("go_goroutines"), m.metric("process_resident_memory_bytes")

	const (
		each  = 40
		bound = 10 * time.Second // of a handshake, by default
		slack = patience
	)
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	kinds := map[string]string{
		"nothing":                    "",
		"one byte":                   "P",
		"half a preface":             preface[:12],
		"a preface and no settings":  preface,
		"half a line of HTTP":        "GET /hea",
		"half the headers of HTTP":   "GET /health HTTP/1.1\r\nHost: x\r\n",
		"half a TLS hello, in plain": "\x16\x03\x01\x02\x00\x01",
	}
	type end struct {
		kind string
		took time.Duration
		err  error
	}
	ends := make(chan end)
	var ended atomic.Int64
	addr := strings.TrimPrefix(m.url, "http://")
	for kind, send := range kinds {
		for range each {
			go func() {
				began := time.Now()
				err := untilClosed(addr, send, bound+slack)
				ended.Add(1)
				ends <- end{kind, time.Since(began), err}
			}()
		}
	}
	n := len(kinds) * each
	harness.Eventually(t, "all are connected", func() error {
		if got := m.metric("go_goroutines"); got < goroutines+each {
			return fmt.Errorf("%v goroutines", got)
		}
		return nil
	})
	if _, err := c.Put(t.Context(), "k", "v"); err != nil || ended.Load() == int64(n) {
		t.Errorf("a put among them: %v after %d of %d", err, ended.Load(), n)
	}
	slowest := make(map[string]time.Duration)
	for range n {
		e := receive(t, "the end of a connection", ends)
		if e.err != nil {
			t.Errorf("%s: %v", e.kind, e.err)
		}
		slowest[e.kind] = max(slowest[e.kind], e.took)
	}
	t.Logf("closed after, at most: %v", slowest)
	harness.Eventually(t, "nothing is left", func() error {
		// A few may come and go: the page itself is asked for by one.
		if got := m.metric("go_goroutines"); got > goroutines+10 {
			return fmt.Errorf("%v goroutines, %v before", got, goroutines)
		}
		return nil
	})
	if got := m.metric("process_resident_memory_bytes"); got > memory+64<<20 {
		t.Errorf("%v bytes of memory, %v before", got, memory)
	}
}

// untilClosed connects, sends, and reads until the other side closes; that it
// does not within d is an error. What the server says before it closes is free.
func untilClosed(addr, send string, d time.Duration) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, send); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("still open after %v", d)
	}
	return nil // closed or reset
}
