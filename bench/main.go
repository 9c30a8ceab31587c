// Bench compares several servers on one machine in one run: leasehold, etcd, ZooKeeper, and the
// ceiling, a bare gRPC server that stores nothing:
//
//	go run -C bench . -etcd /path/to/etcd
//	go run -C bench . -etcd /path/to/etcd -targets leasehold,etcd,zookeeper -run '^client-'
//
// Without -leasehold it builds cmd/leasehold first. Without -etcd it omits etcd. The ceiling is
// this program itself, and ZooKeeper requires Debian's package libzookeeper-java. To compare
// clusters, use
//
//	go run -C bench . -etcd /path/to/etcd -members 3
//
// The ceiling is then still one process, because it has nothing to replicate. The target "synced"
// is a ceiling that writes each request to a file and syncs the file before it answers. To measure
// the cost of access control, use
//
//	go run -C bench . -targets leasehold,leasehold-users -run '^(grant|put)/64$|^keepalive'
//
// The target leasehold-audit has no users, and its audit log records every change.
//
// This is a separate module so that leasehold does not depend on other servers' clients. Package
// compare contains the workloads. The program in sidebyside provokes known faults of etcd in both
// etcd and leasehold.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"leasehold.dev/bench/compare"
	"leasehold.dev/test/process"
)

type options struct {
	leasehold, leaseholdArgs string
	etcd, etcdArgs           string
	only, match, format      string
	through                  string
	list                     bool
	ceiling, ceilingLog      string
	holdCache                string
	users                    int
	plan                     compare.Plan
}

func parse() *options {
	o := &options{}
	flag.StringVar(&o.leasehold, "leasehold", "", "leasehold `binary` (default: built now)")
	flag.StringVar(&o.leaseholdArgs, "leasehold-args", "serve --lease-max-cache-ttl=1m",
		"`arguments` before the flags")
	flag.StringVar(&o.etcd, "etcd", "", "etcd `binary`")
	flag.StringVar(&o.etcdArgs, "etcd-args", "", "`arguments` before the flags")
	flag.StringVar(&o.only, "targets", "leasehold,etcd,ceiling", "which servers, in this order")
	flag.IntVar(&o.users, "users", 1000, "users of leasehold-users, where access control is on")
	flag.StringVar(&o.match, "run", "", "only workloads that match this `regexp`")
	flag.StringVar(&o.format, "o", "table", "output: table or json")
	flag.BoolVar(&o.list, "list", false, "list the workloads and stop")
	flag.StringVar(&o.ceiling, "serve-ceiling", "", "serve the ceiling on this `address` (internal)")
	flag.StringVar(&o.ceilingLog, "ceiling-log", "", "`file` that the ceiling syncs (internal)")
	flag.StringVar(&o.holdCache, "hold-cache", "", "have a key of this `address` (internal)")
	p := &o.plan
	flag.DurationVar(&p.Duration, "t", 5*time.Second, "measured `time` of an open-ended workload")
	flag.IntVar(&p.Rounds, "rounds", 3, "rounds of each workload")
	flag.IntVar(&p.OnceRounds, "long-rounds", 1, "rounds of the longest workloads")
	flag.IntVar(&p.Conns, "conns", 8, "connections of the load generator")
	flag.IntVar(&p.Leases, "leases", 1_000_000, "leases in the memory and sessions-many workloads")
	flag.BoolVar(&p.Keys, "keys", false, "attach a key to each lease in the memory workload")
	flag.IntVar(&p.IdleSessions, "sessions", 4000, "clients in the workloads about idle sessions")
	flag.BoolVar(&p.TLS, "tls", false, "use TLS in the sessions workload")
	flag.IntVar(&p.Relays, "relays", 8, "relays in the workload about very many sessions")
	flag.DurationVar(&p.TTL, "ttl", time.Minute, "TTL of the leases in that workload")
	flag.DurationVar(&p.DrainCap, "cap", 40*time.Second, "longest wait for expired leases to go")
	flag.IntVar(&p.Members, "members", 1, "members of each server: 1, or 3 to 7")
	flag.StringVar(&o.through, "through", "",
		"`members` to connect to: all, leader, followers, or several of these\n"+
			"(default: all, and for keepalive leader,followers)")
	flag.IntVar(&p.Kills, "kills", 20,
		"how many times the failover workload kills, and then hangs, the leader")
	flag.Parse()
	return o
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, parse()); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	if o.ceiling != "" {
		return compare.ServeCeiling(ctx, o.ceiling, o.ceilingLog)
	}
	if o.holdCache != "" {
		return compare.HoldCache(ctx, o.holdCache)
	}
	match, err := regexp.Compile(o.match)
	if err != nil {
		return err
	}
	for _, w := range compare.Workloads() {
		if match.MatchString(w.Name) {
			o.plan.Workloads = append(o.plan.Workloads, w)
		}
	}
	if o.list {
		return list(o.plan.Workloads)
	}
	if o.format != "table" && o.format != "json" {
		return fmt.Errorf("unknown output %q", o.format)
	}
	if o.through != "" {
		for word := range strings.SplitSeq(o.through, ",") {
			t, err := compare.ParseThrough(word)
			if err != nil {
				return err
			}
			o.plan.Through = append(o.plan.Through, t)
		}
	}
	dir, err := os.MkdirTemp("", "leasehold-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := o.targets(ctx, dir); err != nil {
		return err
	}
	if err := o.plan.Check(); err != nil {
		return err
	}
	info, err := os.Stderr.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	o.plan.Progress = compare.ProgressBar(os.Stderr, terminal)
	series, err := compare.Run(ctx, o.plan)
	if o.format == "json" {
		return errors.Join(err, compare.WriteJSON(os.Stdout, o.plan, series))
	}
	return errors.Join(err, compare.WriteTable(os.Stdout, o.plan, series))
}

func list(workloads []compare.Workload) error {
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, w := range workloads {
		fmt.Fprintf(t, "%s\t%s\n", w.Name, w.Doc)
	}
	return t.Flush()
}

// targets adds the requested servers that are available to the plan.
func (o *options) targets(ctx context.Context, dir string) error {
	for name := range strings.SplitSeq(o.only, ",") {
		t := compare.Target{Name: name}
		switch name {
		case "leasehold", "leasehold-audit", "leasehold-users":
			path, err := o.build(ctx, dir)
			if err != nil {
				return err
			}
			t.Path, t.Args = path, strings.Fields(o.leaseholdArgs)
			t.Open, t.Audit = compare.OpenLeasehold, name == "leasehold-audit"
			if name == "leasehold-users" {
				t.Users = o.users
			}
		case "etcd":
			if o.etcd == "" {
				fmt.Fprintln(os.Stderr, "compare: no -etcd binary: leaving etcd out")
				continue
			}
			t.Path, t.Args = o.etcd, strings.Fields(o.etcdArgs)
			t.Open = compare.OpenEtcd
		case "ceiling", "synced":
			self, err := os.Executable()
			if err != nil {
				return err
			}
			t.Path, t.Ceiling, t.Synced = self, true, name == "synced"
		case "zookeeper":
			t = compare.ZooKeeper()
		default:
			return fmt.Errorf("unknown target %q", name)
		}
		o.plan.Targets = append(o.plan.Targets, t)
	}
	return nil
}

// build returns the path of the leasehold binary. It builds the binary unless one was given.
func (o *options) build(ctx context.Context, dir string) (string, error) {
	if o.leasehold != "" {
		return o.leasehold, nil
	}
	return process.Build(ctx, dir)
}
