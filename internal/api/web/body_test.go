package web

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// piped is a response that is read while it is written.
type piped struct {
	http.ResponseWriter
	to io.Writer
}

func (p piped) Write(b []byte) (int, error) { return p.to.Write(b) }
func (p piped) Flush()                      {}

// overJSON starts a watch over JSON without a network; send is the request body, and lines reads
// the response. It must be called in a bubble, and ends with the test.
func overJSON(t *testing.T) (send io.Writer, lines *bufio.Reader) {
	ctx, cancel := context.WithCancel(context.Background())
	loop, conn, err := Loopback()
	if err != nil {
		t.Fatal(err)
	}
	member := grpc.NewServer()
	pb.RegisterWatchServer(member, &fake{ended: make(chan error, 1)})
	go member.Serve(loop) //nolint:errcheck // it is stopped
	h, err := New(ctx, Options{Conn: conn})
	if err != nil {
		t.Fatal(err)
	}
	body, toBody := io.Pipe()
	answer, out := io.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		r := httptest.NewRequestWithContext(ctx, "POST", "/v3/watch", body)
		h.ServeHTTP(piped{httptest.NewRecorder(), out}, r)
		_ = out.Close()
	}()
	t.Cleanup(func() {
		cancel()
		_, _ = answer.Close(), toBody.Close()
		<-served
		_ = conn.Close()
		member.Stop()
	})
	return toBody, bufio.NewReader(answer)
}

// TestIncompleteMessageTimesOut checks that a message on a stream must be complete within a time
// limit after its first bytes, whether these arrive alone or after another message. Between
// messages, a stream may be silent; white space counts as silence.
func TestIncompleteMessageTimesOut(t *testing.T) {
	const message = `{"create_request":{"key":"YQ=="}}`
	for name, c := range map[string]struct {
		first, then string
		late        bool
	}{
		"nothing":            {first: message},
		"a byte":             {first: message, then: message[:1], late: true},
		"a part":             {first: message, then: message[:20], late: true},
		"a whole one":        {first: message, then: message},
		"space":              {first: message + "\n", then: "\r\n \t"},
		"space and a byte":   {first: message + "\n", then: "\n" + message[:1], late: true},
		"one and a part":     {first: message, then: message + message[:20], late: true},
		"a part behind":      {first: message + message[:20], late: true},
		"a large one, space": {first: large(message), then: " "},
		"a large one, more":  {first: large(message) + message[:20], late: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				send, lines := overJSON(t)
				for _, part := range []string{c.first, c.then} {
					if _, err := io.WriteString(send, part); err != nil {
						t.Fatal(err)
					}
					for range strings.Count(part, message) {
						if line, err := lines.ReadString('\n'); !strings.Contains(line, `"key":"YQ=="`) {
							t.Fatal(line, err)
						}
					}
					if part == c.first && c.then != "" || !c.late {
						time.Sleep(time.Hour)
					}
				}
				if !c.late {
					_, _ = io.WriteString(send, message)
				}
				line, _ := lines.ReadString('\n')
				if late := strings.Contains(line, "did not arrive in time"); late != c.late {
					t.Error(line)
				}
			})
		})
	}
}

// large returns a longer message with the same meaning.
func large(message string) string { return strings.Repeat(" ", maxBuffer) + message }

// TestIdleStreamMemory checks that between messages a stream uses little memory, and that this
// memory is counted.
func TestIdleStreamMemory(t *testing.T) {
	var rest []int
	large := `{"key":"` + strings.Repeat("YWFh", 100<<10) + `"}`
	b := &body{
		ReadCloser: io.NopCloser(strings.NewReader(large + ` {"key":"Yg`)), limit: 1 << 20,
		duplex: true, begun: func() {}, arrived: func(n int) { rest = append(rest, n) },
		fail: func(error) {}, ended: make(chan struct{}),
	}
	close(b.ended)
	m := &marshaler{}
	dec := &decoder{marshaler: m, r: b}
	if err := b.decode(dec, new(pb.PutRequest)); err != nil {
		t.Fatal(err)
	}
	if dec.json != nil || len(b.unread) != 11 || len(rest) != 1 || rest[0] != 11 {
		t.Errorf("kept: a decoder %v, %q; counted %d", dec.json != nil, b.unread, rest)
	}
	if err := b.decode(dec, new(pb.PutRequest)); err == nil {
		t.Error("half a message was decoded")
	}
	if left := b.left; left != 1<<20-11 {
		t.Errorf("%d bytes are left of a message of 11", left)
	}
}

// TestRefusedMessageWaits checks that an error in a message on a stream is reported. The gateway
// closes its stream as soon as a message is rejected. If the call saw the end of the stream before
// its cancellation, it would succeed, and the client would not receive a reason.
func TestRefusedMessageWaits(t *testing.T) {
	for name, from := range map[string]io.Reader{
		"malformed": strings.NewReader(`{"key":nonsense}`),
		"too large": strings.NewReader(`{"key":"` + strings.Repeat("YWFh", 100) + `"}`),
		"broken":    iotest.ErrReader(io.ErrClosedPipe),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var cancelled, returned bool
				b := &body{
					ReadCloser: io.NopCloser(from), limit: 100, duplex: true,
					begun: func() {}, arrived: func(int) {},
					fail:  func(error) { cancelled = true },
					ended: make(chan struct{}),
				}
				go func() {
					if b.decode(&decoder{marshaler: &marshaler{}, r: b}, new(pb.PutRequest)) == nil {
						t.Error("the message was decoded")
					}
					returned = true
				}()
				synctest.Wait()
				if !cancelled || returned {
					t.Errorf("the call was cancelled: %v; before it was answered, the refusal returned: %v",
						cancelled, returned)
				}
				close(b.ended)
				synctest.Wait()
				if !returned {
					t.Error("the refusal did not return")
				}
			})
		})
	}
}
