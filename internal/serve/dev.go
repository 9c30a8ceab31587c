package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"leasehold.dev/internal/api/web"
	"leasehold.dev/internal/relay"
	"leasehold.dev/server"
)

// DevCommand returns the command "leasehold dev", which runs a whole cluster in this process. Users
// can use it to try things out or to test their programs.
func DevCommand() *cobra.Command {
	d := &dev{}
	c := &cobra.Command{
		Use:   "dev [flags]",
		Short: "Run a three-member cluster in one process, for experiments",
		Long: "Run a cluster in one process until Ctrl-C. Its data is in a temporary directory,\n" +
			"which is removed at the end, unless --data-dir is set. Use it only for experiments:\n" +
			"if the process dies, all members die.",
		Example: "  leasehold dev\n  leasehold dev --demo",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := d.check(); err != nil {
				return err
			}
			ctx := c.Context()
			if ctx == nil {
				ctx = context.Background()
			}
			return withExitCode(d.run(ctx, c.OutOrStdout(), c.ErrOrStderr()))
		},
	}
	fs := c.Flags()
	fs.IntVar(&d.members, "members", 3, "number of members: 1, 3, 5 or 7")
	fs.IntVar(&d.port, "port", clientPorts[0],
		"client port of the first member. With the default, the others use 22379, 32379, ...,\n"+
			"as in etcd's examples; otherwise each uses a port 10 higher than the one before;\n"+
			"with 0 all use free ports. The peer port of a member is the next one")
	fs.IntVar(&d.relays, "relays", 0, "number of relays. The port of the first is --port plus 100;\n"+
		"each further relay uses a port 10 higher than the previous one")
	fs.BoolVar(&d.demo, "demo", false,
		"also run programs that hold leases, locks and queue items, and occasionally die")
	fs.StringVar(&d.dir, "data-dir", "", "directory to keep the data in (default: a temporary one)")
	fs.StringVar(&d.level, "log-level", "error", "debug, info, warn or error")
	return c
}

// dev runs a cluster inside one process.
type dev struct {
	members, port int
	relays        int
	dir, level    string
	demo          bool
}

func (d *dev) check() error {
	switch {
	case d.members != 1 && d.members != 3 && d.members != 5 && d.members != 7:
		return usageError("--members must be 1, 3, 5 or 7")
	case d.relays < 0 || d.relays > 10:
		return usageError("--relays must be from 0 to 10")
	case d.relays > 0 && d.port+100+10*d.relays > 1<<16:
		return usageError("--port %d leaves no room for %d relays", d.port, d.relays)
	case d.port < 0 || d.port > 1<<16-2:
		return usageError("--port must be from 0 to 65534")
	case d.port == 0 && d.dir != "":
		return usageError("with --port 0 the addresses would change on every start, and the " +
			"data in --data-dir contains them; set --port")
	}
	return nil
}

// run runs the cluster until a signal arrives, ctx ends, or a member fails.
func (d *dev) run(ctx context.Context, stdout, stderr io.Writer) error {
	own, err := logFlags{
		level: d.level, format: "console", outputs: []string{"default"},
	}.open(stdout, stderr)
	if err != nil {
		return err
	}
	defer own.close() //nolint:errcheck // at exit there is nowhere left to report it
	lg := own.Logger
	quietGRPC()
	ctx, stop := untilSignal(ctx, own, false)
	defer stop()
	dir := d.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "leasehold-dev-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // temporary
	}
	configs, err := d.configs(dir, lg)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	ready := make(chan struct{})
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		select {
		case <-ready:
			// by this time, the members have chosen their ports
			relays, err := d.relayConfigs(configs, lg)
			if err == nil {
				err = runRelays(ctx, relays, func() {
					endpoints := d.explain(stdout, dir, configs, relays)
					if d.demo {
						all.Go(func() { d.show(ctx, endpoints, lg, fail) })
					}
				})
			}
			if err != nil {
				fail(err)
			}
		case <-ctx.Done():
		}
	})
	return runAll(ctx, configs, ready)
}

// relayConfigs returns the configuration of each relay.
func (d *dev) relayConfigs(
	members []server.Config, lg *slog.Logger,
) (all []relay.Config, err error) {
	var places []url.URL
	for i := range d.relays {
		places = append(places, loopbackURL(d.port+100+10*i))
	}
	if d.port == 0 {
		if places, err = freeURLs(d.relays, anyPort); err != nil {
			return nil, err
		}
	}
	for i, at := range places {
		all = append(all, relay.Config{
			Endpoints: clientHosts(members), Listen: []url.URL{at}, HTTP: web.DefaultSettings(),
			Logger: lg.With("name", "r"+strconv.Itoa(i+1)),
		})
	}
	return all, nil
}

// clientHosts returns the client address of each member.
func clientHosts(configs []server.Config) (out []string) {
	for _, c := range configs {
		out = append(out, c.URLs.ListenClient[0].Host)
	}
	return out
}

// runRelays runs relays until ctx ends or a relay fails. It calls ready once all of them are
// serving.
func runRelays(ctx context.Context, configs []relay.Config, ready func()) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var running sync.WaitGroup
	for _, cfg := range configs {
		r, err := relay.New(cfg)
		if err != nil {
			fail(err)
			break
		}
		running.Go(func() {
			if err := r.Run(ctx); err != nil {
				fail(fmt.Errorf("relay: %w", err))
			}
		})
		select {
		case <-r.Ready():
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil {
		ready()
	}
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// runAll runs members until ctx ends or a member fails. It closes ready once all of them are
// serving. If the cluster removes a member, the other members keep running.
func runAll(ctx context.Context, configs []server.Config, ready chan<- struct{}) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var serving, running sync.WaitGroup
	for _, cfg := range configs {
		s, err := server.New(cfg)
		if err != nil {
			fail(nil)
			running.Wait()
			return fmt.Errorf("member %s: %w", cfg.Name, err)
		}
		running.Go(func() {
			if err := s.Run(ctx); err != nil {
				fail(fmt.Errorf("member %s: %w", cfg.Name, err))
			}
		})
		serving.Go(func() {
			select {
			case <-s.Ready():
			case <-ctx.Done():
			}
		})
	}
	serving.Wait()
	if ctx.Err() == nil {
		close(ready)
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// configs returns the configuration of each member.
func (d *dev) configs(dir string, lg *slog.Logger) ([]server.Config, error) {
	var all []server.Config
	initial := make(map[string][]url.URL)
	addresses, err := d.addresses()
	if err != nil {
		return nil, err
	}
	for i := range d.members {
		c := server.DefaultConfig()
		c.Name = "m" + strconv.Itoa(i+1)
		c.DataDir = filepath.Join(dir, c.Name)
		c.Logger = lg.With("name", c.Name)
		c.Limits.MembersOfProcess = d.members
		client, peer := addresses[2*i], addresses[2*i+1]
		c.URLs.ListenClient, c.URLs.AdvertiseClient = []url.URL{client}, []url.URL{client}
		c.URLs.ListenPeer, c.URLs.AdvertisePeer = []url.URL{peer}, []url.URL{peer}
		initial[c.Name] = []url.URL{peer}
		all = append(all, c)
	}
	for i := range all {
		all[i].Cluster.Initial = initial
		if err := all[i].Validate(); err != nil {
			return nil, usageError("%w", err)
		}
	}
	return all, nil
}

// addresses returns the client URL and then the peer URL of each member.
func (d *dev) addresses() (out []url.URL, err error) {
	if d.port == 0 {
		return freeURLs(2*d.members, anyPort)
	}
	for i := range d.members {
		port := d.port + 10*i
		if d.port == clientPorts[0] {
			port = clientPorts[i]
		}
		if port+1 >= 1<<16 {
			return nil, usageError("--port %d leaves no room for %d members", d.port, d.members)
		}
		out = append(out, loopbackURL(port), loopbackURL(port+1))
	}
	return out, nil
}

func loopbackURL(port int) url.URL {
	return url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
}

func anyPort() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

// freeURLs returns n different addresses that are currently free. To make them different, it keeps
// all listeners open until it has found the last address. Another process could take an address
// before the member does. In that case, the member reports the error.
func freeURLs(n int, listen func() (net.Listener, error)) (out []url.URL, err error) {
	for range n {
		l, err := listen()
		if err != nil {
			return nil, err
		}
		defer l.Close() //nolint:errcheck // nothing was written
		out = append(out, loopbackURL(l.Addr().(*net.TCPAddr).Port))
	}
	return out, nil
}

// show runs the demo.
func (d *dev) show(
	ctx context.Context, endpoints string, lg *slog.Logger, fail context.CancelCauseFunc,
) {
	exe, err := os.Executable()
	if err != nil {
		fail(err)
		return
	}
	(&demo{exe: exe, endpoints: endpoints, log: lg}).run(ctx)
}

// explain prints the members' addresses and how to use them. It returns the addresses for clients.
func (d *dev) explain(
	w io.Writer, dir string, configs []server.Config, relays []relay.Config,
) string {
	endpoints, through := clientHosts(configs), ""
	if len(relays) > 0 {
		through = fmt.Sprintf(" Relays: %d, connected to the members at %s.", len(relays),
			strings.Join(endpoints, ", "))
		endpoints = nil
		for _, c := range relays {
			endpoints = append(endpoints, c.Listen[0].Host)
		}
	}
	kept := "kept"
	if d.dir == "" {
		kept = "removed at the end"
	}
	if d.demo {
		through += " Demo programs hold leases, locks and queue items, and occasionally die."
	}
	fmt.Fprintf(w, `A cluster is running on this machine until Ctrl-C. Members: %d. Data: %s (%s).%s

To view it in a browser: %s

In another terminal:

  export LEASEHOLD_ENDPOINTS=%s
  leasehold endpoint status -w table
  leasehold lease grant 10
  leasehold put greeting hello --lease=ID
  leasehold watch greeting
`, len(configs), dir, kept, through, configs[0].URLs.ListenClient[0].JoinPath("ui/"),
		strings.Join(endpoints, ","))
	return strings.Join(endpoints, ",")
}
