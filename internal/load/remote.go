package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Operations lists what a Remote can measure, in the order of the measurements.
var Operations = []string{"grant", "put", "read", "renew", "expire"}

// A Remote measures any running server. Everything that it creates is attached to leases with a TTL
// of ten minutes, which Run revokes at the end.
type Remote struct {
	Client *Client
	// Endpoints are listed in the report.
	Endpoints []string
	// Only lists the Operations to measure. If it is empty, all of them are measured.
	Only []string
	// Duration and Count both limit each operation, except that expire is limited only by Count.
	Duration time.Duration
	Count    int
	// Callers is the number of concurrent callers.
	Callers int
	// Usage returns the resources that the server's processes have used so far. If it is nil or
	// fails, the report does not contain costs.
	Usage func(context.Context) (Usage, error)
	// Traffic, if not nil, counts the bytes on the connections.
	Traffic *Traffic
	// Progress, if not nil, is called regularly with the current operation and the fraction of all
	// work that has been done. Only one goroutine calls it at a time.
	Progress func(operation string, done float64)

	prefix []byte
	mu     sync.Mutex
	leases []int64 // leases to revoke; guarded by mu
	step   atomic.Int64

	progressMu sync.Mutex // held while Progress is called
}

// A Report contains the results of a Remote.
type Report struct {
	Endpoints  []string    `json:"endpoints"`
	Callers    int         `json:"callers"`
	Operations []Operation `json:"operations"`
	// LeaseBytes is how much the server's memory has grown per lease. It is 0 if there were too few
	// leases to measure that.
	LeaseBytes float64 `json:"lease_bytes,omitempty"`
	// Left is the number of leases that could not be revoked and therefore have to expire.
	Left int `json:"left,omitempty"`
}

// An Operation contains the results for one of the Operations.
type Operation struct {
	Name  string  `json:"name"`
	Count uint64  `json:"count"`
	Rate  float64 `json:"rate"` // per second
	// P50, P99 and Max are latencies in milliseconds. For expire, they measure how late the
	// deletions were seen.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
	// CPU is the CPU time that the server's processes use per operation, in microseconds. It is 0
	// if unknown.
	CPU float64 `json:"cpu_us,omitempty"`
	// Bytes is how many bytes are sent and received per operation. It is 0 if unknown.
	Bytes float64 `json:"bytes,omitempty"`
}

// Find returns the named operation in the report.
func (r Report) Find(name string) (Operation, bool) {
	i := slices.IndexFunc(r.Operations, func(o Operation) bool { return o.Name == name })
	if i < 0 {
		return Operation{}, false
	}
	return r.Operations[i], true
}

const (
	// remoteTTL is the TTL in seconds of leases created by a Remote.
	remoteTTL = 600
	// fewLeases is the number of leases used by put and renew.
	fewLeases = 1024
	// manyLeases is the minimum number of leases for measuring the memory per lease.
	manyLeases = 50_000
	// sweepTime is the timeout for revoking all leases at the end.
	sweepTime = time.Minute
	// slowest is how far an operation can overrun its planned duration.
	slowest = 30 * time.Second
	// expiring is the TTL in seconds of leases that will be left to expire. It is the shortest TTL
	// that etcd grants.
	expiring = 2
)

// Check returns an error if the Remote's settings are invalid.
func (r *Remote) Check() error {
	for _, name := range r.Only {
		if !slices.Contains(Operations, name) {
			return fmt.Errorf("bench: unknown operation %q: choose from %s", name,
				strings.Join(Operations, ", "))
		}
	}
	switch {
	case r.Duration <= 0 || r.Duration > 10*time.Minute:
		return fmt.Errorf("bench: the time for an operation must be above 0 and at most 10m, not %v",
			r.Duration)
	case r.Count < 1 || r.Count > 1_000_000:
		return fmt.Errorf("bench: the number of operations must be from 1 to 1000000, not %d", r.Count)
	case r.Callers < 1 || r.Callers > 4096:
		return fmt.Errorf("bench: the number of callers must be from 1 to 4096, not %d", r.Callers)
	}
	return nil
}

// Run measures the operations in order, and then deletes everything that it created, even if ctx
// ends. If it fails, the report contains the results so far.
func (r *Remote) Run(ctx context.Context) (rep Report, err error) {
	if err := r.Check(); err != nil {
		return Report{}, err
	}
	if len(r.Only) == 0 {
		r.Only = Operations
	}
	rep = Report{Endpoints: r.Endpoints, Callers: r.Callers}
	r.prefix = fmt.Appendf(nil, "leasehold-bench/%016x/", rand.Uint64())
	defer func() {
		rep.Left = r.sweep(context.WithoutCancel(ctx))
	}()
	before, known := r.usage(ctx)
	for i, name := range Operations {
		if !slices.Contains(r.Only, name) {
			continue
		}
		r.step.Store(int64(i))
		o, err := r.operation(ctx, name)
		if ctx.Err() != nil {
			return rep, context.Cause(ctx)
		}
		if err != nil {
			return rep, fmt.Errorf("%s: %w", name, err)
		}
		rep.Operations = append(rep.Operations, o)
		if after, ok := r.usage(ctx); name == "grant" && ok && known && o.Count >= manyLeases {
			rep.LeaseBytes = max(0, float64(after.RSS-before.RSS)/float64(o.Count))
		}
	}
	return rep, nil
}

func (r *Remote) usage(ctx context.Context) (Usage, bool) {
	if r.Usage == nil {
		return Usage{}, false
	}
	u, err := r.Usage(ctx)
	return u, err == nil
}

func (r *Remote) report(what string, done float64) {
	if r.Progress == nil {
		return
	}
	r.progressMu.Lock()
	defer r.progressMu.Unlock()
	r.Progress(what, done)
}

// operation measures one operation. If the server's costs are known, it includes them.
func (r *Remote) operation(ctx context.Context, name string) (Operation, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.Duration+slowest,
		fmt.Errorf("the server is not keeping up: not finished after %v", r.Duration+slowest))
	defer cancel()
	run := map[string]func(context.Context, *tally) error{
		"grant": r.grants, "put": r.puts, "read": r.reads, "renew": r.renewals, "expire": r.expiries,
	}[name]
	t := &tally{name: name}
	if err := run(ctx, t); err != nil {
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.DeadlineExceeded) {
			err = cause
		}
		return Operation{}, err
	}
	r.progress(name, 1)
	n := float64(t.hist.Count())
	o := Operation{
		Name: name, Count: t.hist.Count(), P50: Millis(t.hist.Quantile(0.50)),
		P99: Millis(t.hist.Quantile(0.99)), Max: Millis(t.hist.Max()),
	}
	if n > 0 && t.took > 0 {
		o.Rate = n / t.took.Seconds()
		o.CPU, o.Bytes = float64(t.cpu.Microseconds())/n, float64(t.bytes)/n
	}
	return o, nil
}

// A tally accumulates the results of one operation.
type tally struct {
	name  string
	hist  Histogram
	took  time.Duration
	cpu   time.Duration
	bytes int64
}

// measured runs f, and measures its duration, costs and traffic.
func (r *Remote) measured(ctx context.Context, t *tally, f func() error) error {
	before, known := r.usage(ctx)
	bytes := r.Traffic.Bytes()
	began := time.Now()
	if err := f(); err != nil {
		return err
	}
	t.took = time.Since(began)
	t.bytes = r.Traffic.Bytes() - bytes
	if after, ok := r.usage(ctx); ok && known {
		t.cpu = after.CPU - before.CPU
	}
	return nil
}

// loop repeats an operation with concurrent callers until the time is up or Count has been reached.
// It reports progress.
func (r *Remote) loop(ctx context.Context, t *tally, f Op) error {
	return r.measured(ctx, t, func() error {
		began := time.Now()
		var next atomic.Int64
		var failed atomic.Bool
		return Parallel(r.Callers, func(caller int, mine *Histogram) error {
			for !failed.Load() {
				i, at := int(next.Add(1)-1), time.Now()
				if i >= r.Count || at.Sub(began) >= r.Duration {
					return nil
				}
				if err := f(ctx, caller, i); err != nil {
					failed.Store(true)
					return err
				}
				mine.Add(time.Since(at))
				if caller == 0 {
					r.progress(t.name, max(float64(i)/float64(r.Count),
						float64(time.Since(began))/float64(r.Duration)))
				}
			}
			return nil
		}, &t.hist)
	})
}

// progress reports what fraction of an operation has been done.
func (r *Remote) progress(name string, share float64) {
	r.report(name, (float64(r.step.Load())+min(1, share))/float64(len(Operations)))
}

// sweep revokes all granted leases, which also deletes their keys. It returns the number of leases
// that it could not revoke.
func (r *Remote) sweep(ctx context.Context) (left int) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	var gone atomic.Int64
	r.mu.Lock()
	leases := r.leases
	r.mu.Unlock()
	// After an error, some leases are left. The report contains their number.
	_ = Spread(ctx, 64, len(leases), func(ctx context.Context, caller, i int) error {
		_, err := r.Client.Lease(caller).LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: leases[i]})
		if err == nil {
			gone.Add(1)
		}
		if caller == 0 {
			r.report("cleaning up", float64(i)/float64(len(leases)))
		}
		return err
	})
	return len(leases) - int(gone.Load())
}
