package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// frameHeader is the size of the HTTP/2 header of each message.
const frameHeader = 9

// Traffic is a stats.Handler that counts the bytes of messages and headers on connections. It is
// safe for concurrent use. A nil Traffic counts nothing.
type Traffic struct{ bytes atomic.Int64 }

// Bytes returns the number of bytes so far, in both directions.
func (t *Traffic) Bytes() int64 {
	if t == nil {
		return 0
	}
	return t.bytes.Load()
}

// TagRPC implements stats.Handler.
func (*Traffic) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements stats.Handler.
func (*Traffic) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (*Traffic) HandleConn(context.Context, stats.ConnStats) {}

// HandleRPC implements stats.Handler.
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

// Usage is what a process uses: its CPU time since it started, and its memory.
type Usage struct {
	// CPU is the user and system time.
	CPU time.Duration
	// RSS is the resident memory in bytes.
	RSS int64
}

// A page holds the values from a /metrics page that describe the process.
type page struct {
	Usage
	// began is when the process started, in seconds. It distinguishes between processes on the same
	// host.
	began float64
}

// MetricsUsage adds up the usage of all processes, as reported by the /metrics pages at the URLs. A
// process that serves several pages is counted once.
func MetricsUsage(ctx context.Context, c *http.Client, urls []string) (Usage, error) {
	type key struct {
		host  string
		began float64
	}
	seen := map[key]bool{}
	var sum Usage
	for _, text := range urls {
		p, err := pageUsage(ctx, c, text)
		if err != nil {
			return Usage{}, err
		}
		u, err := url.Parse(text)
		if err != nil {
			return Usage{}, err
		}
		k := key{u.Hostname(), p.began}
		if p.began != 0 && seen[k] {
			continue
		}
		seen[k] = true
		sum.CPU += p.CPU
		sum.RSS += p.RSS
	}
	return sum, nil
}

func pageUsage(ctx context.Context, c *http.Client, url string) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return page{}, err
	}
	r, err := c.Do(req)
	if err != nil {
		return page{}, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return page{}, fmt.Errorf("%s: %s", url, r.Status)
	}
	return parseMetrics(r.Body)
}

// parseMetrics reads the process metrics that each Prometheus client exports.
func parseMetrics(text io.Reader) (page, error) {
	metrics := map[string]float64{}
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, figure, _ := strings.Cut(lines.Text(), " ")
		if !strings.HasPrefix(name, "process_") {
			continue
		}
		v, err := strconv.ParseFloat(figure, 64)
		if err != nil {
			return page{}, fmt.Errorf("bench: metric %s: %w", name, err)
		}
		metrics[name] = v
	}
	if err := lines.Err(); err != nil {
		return page{}, err
	}
	cpu, ok := metrics["process_cpu_seconds_total"]
	rss, ok2 := metrics["process_resident_memory_bytes"]
	if !ok || !ok2 {
		return page{}, errors.New("bench: the page has no process metrics")
	}
	return page{
		Usage{CPU: time.Duration(cpu * float64(time.Second)), RSS: int64(rss)},
		metrics["process_start_time_seconds"],
	}, nil
}

// isCancelled reports whether a call ended because we canceled it.
func isCancelled(err error) bool { return status.Code(err) == codes.Canceled }
