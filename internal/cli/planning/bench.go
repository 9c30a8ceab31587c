package planning

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/load"
	"leasehold.dev/plan"
)

func (a commands) benchCommand() *cobra.Command {
	s := &reportFlags{}
	r := &load.Remote{}
	conns := 4
	cmd := a.Make(app.Command{
		Use: "bench", Short: "Measure grant, put, read, renew and expire against a server",
		Long: `Measure rates and latencies of operations on leases in a cluster of Leasehold or
etcd, and the CPU time per operation if /metrics can be read. All keys are under leasehold-bench/,
attached to leases, and are removed at the end. This generates load: do not run it against a cluster
that others depend on.`,
		Example: "bench --duration 2s\nbench --run grant,renew -o json > costs.json",
		Flags: func(fs *pflag.FlagSet) {
			fs.StringSliceVar(&r.Only, "run", nil,
				"operations to measure: "+strings.Join(load.Operations, ", ")+" (default: all)")
			fs.DurationVar(&r.Duration, "duration", 3*time.Second, "maximum time for each operation")
			fs.IntVar(&r.Count, "count", 100_000, "maximum number of operations of each kind")
			fs.IntVar(&r.Callers, "callers", 64, "concurrent callers")
			fs.IntVar(&conns, "connections", 4, "number of connections that the callers share")
		},
		Run: func(*cobra.Command, []string, []string) error {
			if err := s.check(a); err != nil {
				return err
			}
			if err := r.Check(); err != nil {
				return app.WithCode(app.ExitBadArgs, err)
			}
			return a.runBench(s, r, conns)
		},
	})
	s.register(cmd)
	return cmd
}

// loaded holds the connections of the load generator and the counters that measure their cost.
type loaded struct {
	client    *load.Client
	endpoints []string
	traffic   *load.Traffic
	http      *http.Client
	pages     []string
	close     func()
}

// dialLoad opens n connections, distributed over the endpoints.
func (a commands) dialLoad(n int) (*loaded, error) {
	if n < 1 || n > 1000 {
		return nil, app.BadArgs("--connections must be from 1 to 1000, not %d", n)
	}
	spec, err := a.Prepare()
	if err != nil {
		return nil, err
	}
	cfg, err := clientv3.NewClientConfig(spec, zap.NewNop())
	if err != nil {
		return nil, app.WithCode(app.ExitBadArgs, err)
	}
	cfg.Logger = zap.NewNop() // failures are reported once, not by each caller
	l := &loaded{
		endpoints: spec.Endpoints, traffic: &load.Traffic{},
		http: &http.Client{Transport: &http.Transport{TLSClientConfig: cfg.TLS}},
	}
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithStatsHandler(l.traffic))
	var clients []*clientv3.Client
	l.close = func() {
		for _, c := range clients {
			_ = c.Close() // all requests have been answered
		}
		l.http.CloseIdleConnections()
	}
	var conns []*grpc.ClientConn
	for i := range n {
		one := *cfg
		one.Endpoints = []string{spec.Endpoints[i%len(spec.Endpoints)]}
		c, err := clientv3.New(one)
		if err != nil {
			l.close()
			return nil, app.WithCode(app.ExitConnection, err)
		}
		clients, conns = append(clients, c), append(conns, c.ActiveConnection())
		if i < len(spec.Endpoints) {
			if err := a.Answers(c, one.Endpoints[0]); err != nil {
				l.close()
				return nil, err
			}
			l.pages = append(l.pages, metricsPage(one.Endpoints[0], cfg.TLS != nil))
		}
	}
	l.client = load.Over(conns)
	return l, nil
}

// metricsPage returns the URL of an endpoint's metrics.
func metricsPage(endpoint string, tls bool) string {
	if strings.HasPrefix(endpoint, "http://") || strings.HasPrefix(endpoint, "https://") {
		return endpoint + "/metrics"
	}
	if tls {
		return "https://" + endpoint + "/metrics"
	}
	return "http://" + endpoint + "/metrics"
}

func (a commands) runBench(s *reportFlags, r *load.Remote, conns int) error {
	l, err := a.dialLoad(conns)
	if err != nil {
		return err
	}
	defer l.close()
	ctx, stop := a.UntilSignal()
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C also interrupts the cleanup
	bar := a.NewProgress()
	r.Client, r.Endpoints, r.Traffic, r.Progress = l.client, l.endpoints, l.traffic, bar.Show
	r.Usage = func(ctx context.Context) (load.Usage, error) {
		return load.MetricsUsage(ctx, l.http, l.pages)
	}
	rep, err := r.Run(ctx)
	bar.End()
	if len(rep.Operations) > 0 {
		err = fault.Join(err, s.display(a, benchReport(rep)))
	}
	if ctx.Err() == nil {
		return err
	}
	left := "its keys and leases were removed"
	if rep.Left > 0 {
		left = fmt.Sprintf("%d of its leases remain, and will end within ten minutes", rep.Left)
	}
	return app.WithCode(app.ExitInterrupted, errors.New("interrupted; "+left))
}

func benchReport(rep load.Report) report {
	sh := report{wire: rep, Report: plan.Report{
		Figures: [][2]string{
			{"endpoints", strings.Join(rep.Endpoints, ", ")},
			{"callers", fmt.Sprint(rep.Callers)},
		},
		Head: []string{"operation", "count", "rate/s", "p50 ms", "p99 ms", "max ms", "cpu us", "bytes"},
	}}
	costs := false
	optional := func(v float64) string {
		if v == 0 {
			return "-"
		}
		return decimal(v)
	}
	for _, o := range rep.Operations {
		costs = costs || o.CPU > 0
		rate, cpu, bytes := decimal(o.Rate), optional(o.CPU), optional(o.Bytes)
		if o.Name == "expire" { // it spends most of its time waiting
			rate, cpu, bytes = "-", "-", "-"
		}
		sh.Rows = append(sh.Rows, []string{
			o.Name, fmt.Sprint(o.Count), rate, fmt.Sprintf("%.2f", o.P50),
			fmt.Sprintf("%.2f", o.P99), fmt.Sprintf("%.2f", o.Max), cpu, bytes,
		})
	}
	sh.Sentences = append(sh.Sentences,
		"For expire, the latency is the time from the expiry of a 2 s lease to its observed end.")
	if !costs {
		sh.Sentences = append(sh.Sentences, "The servers' /metrics could not be read, so there is no "+
			"CPU time.")
	}
	if rep.LeaseBytes > 0 {
		sh.Sentences = append(sh.Sentences, fmt.Sprintf("A lease uses %.0f bytes of "+
			"resident memory.", rep.LeaseBytes))
	}
	if rep.Left > 0 {
		sh.Sentences = append(sh.Sentences, fmt.Sprintf("%d leases could not be revoked; they "+
			"and their keys end on their own within ten minutes.", rep.Left))
	}
	return sh
}

// decimal formats v with three significant digits, or as an integer if that has more digits.
func decimal(v float64) string {
	if v >= 999.5 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
