package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// frameHeader is what HTTP/2 puts before each message.
const frameHeader = 9

// Traffic counts the bytes of messages and headers on connections that have it as
// their stats.Handler. It is safe for concurrent use; a nil one counts nothing.
type Traffic struct{ bytes atomic.Int64 }

// Bytes is how many went both ways so far.
func (t *Traffic) Bytes() int64 {
	if t == nil {
		return 0
	}
	return t.bytes.Load()
}

// TagRPC adds nothing.
func (*Traffic) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn adds nothing.
func (*Traffic) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn counts nothing.
func (*Traffic) HandleConn(context.Context, stats.ConnStats) {}

// HandleRPC counts.
func (t *Traffic) HandleRPC(_ context.Context, s stats.RPCStats) {
	n := 0
	switch s := s.(type) {
	case *stats.InPayload:
		n = s.WireLength + frameHeader
	case *stats.OutPayload:
		n = s.WireLength + frameHeader
	case *stats.InHeader:
		n = s.WireLength + frameHeader
	case *stats.InTrailer:
		n = s.WireLength + frameHeader
	}
	t.bytes.Add(int64(n))
}

// MetricsUsage reads from the /metrics pages at these URLs what the processes
// there have used so far, all together.
func MetricsUsage(ctx context.Context, c *http.Client, urls []string) (Usage, error) {
	var sum Usage
	for _, url := range urls {
		u, err := pageUsage(ctx, c, url)
		if err != nil {
			return Usage{}, err
		}
		sum.CPU += u.CPU
		sum.RSS += u.RSS
	}
	return sum, nil
}

func pageUsage(ctx context.Context, c *http.Client, url string) (Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Usage{}, err
	}
	r, err := c.Do(req)
	if err != nil {
		return Usage{}, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return Usage{}, fmt.Errorf("%s: %s", url, r.Status)
	}
	return parseMetrics(r.Body)
}

// parseMetrics reads the two lines that every Prometheus client writes of its
// process.
func parseMetrics(page io.Reader) (Usage, error) {
	var u Usage
	found := 0
	lines := bufio.NewScanner(page)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if name != "process_cpu_seconds_total" && name != "process_resident_memory_bytes" {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("bench: metric %s: %w", name, err)
		}
		found++
		if name == "process_cpu_seconds_total" {
			u.CPU = time.Duration(v * float64(time.Second))
			continue
		}
		u.RSS = int64(v)
	}
	if err := lines.Err(); err != nil {
		return Usage{}, err
	}
	if found < 2 {
		return Usage{}, fmt.Errorf("bench: the page has no metrics of its process")
	}
	return u, nil
}

// isCancelled says whether a call ended because we gave up on it.
func isCancelled(err error) bool { return status.Code(err) == codes.Canceled }
