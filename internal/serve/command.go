package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/grpc/grpclog"

	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/logger"
	"leasehold.dev/internal/tracing"
	"leasehold.dev/internal/version"
	"leasehold.dev/server"
)

// Command returns the command "leasehold serve". If its error has an exit code, the program should
// exit with that code.
func Command() *cobra.Command {
	return command(process{
		env:      os.Environ,
		hostname: hostname,
		run:      runMember,
	})
}

// process abstracts the parts of the process that the command uses, for tests.
type process struct {
	env      func() []string
	hostname func() string
	// run runs a member. The joiner is nil unless the member joins a running cluster. The reloader
	// is nil unless there is a file to reload.
	run func(context.Context, server.Config, *joiner, *reloader) error
}

func command(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Run one member",
		// Flags are not parsed by cobra, because it does not accept etcd's -name and would add the
		// flags of client commands.
		DisableFlagParsing: true,
		SilenceErrors:      true,
		SilenceUsage:       true,
		ValidArgsFunction:  complete,
		RunE: func(c *cobra.Command, args []string) error {
			return p.serve(c, args)
		},
	}
	c.SetHelpFunc(func(c *cobra.Command, _ []string) { newFlags().help(c.OutOrStdout()) })
	return c
}

// serve reads the flags and runs the member.
func (p process) serve(c *cobra.Command, args []string) error {
	f := newFlags()
	cfg, warnings, err := f.load(args, p.env(), p.hostname())
	switch {
	case errors.Is(err, errHelp):
		f.help(c.OutOrStdout())
		return nil
	case err != nil:
		return err
	}
	if f.version {
		printVersion(c.OutOrStdout())
		return nil
	}
	lg, err := f.log.open(c.OutOrStdout(), c.ErrOrStderr())
	if err != nil {
		return f.located(err)
	}
	defer lg.close() //nolint:errcheck // the process ends; there is nowhere left to report it
	warnAll(lg.Logger, warnings)
	traces, err := tracing.Open(lg.Logger, attribute.String("service.name", "leasehold"),
		attribute.String("service.version", version.Version),
		attribute.String("service.instance.id", strings.ToValidUTF8(cfg.Name, "?")))
	if err != nil {
		return f.located(err)
	}
	defer traces.Close()
	cfg.TracerProvider = traces.Provider()
	cfg.Logger = lg.Logger
	cfg.HTTP.Collectors = append(lg.collectors(), traces.Collectors()...)
	j, err := f.joiner(lg.Logger)
	if err != nil {
		return f.located(err)
	}
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	var r *reloader
	if f.configFile != "" || cfg.Access.BindingsFile != "" {
		// Otherwise, SIGHUP stops the member, as it does when the terminal closes.
		r = &reloader{args: args, env: p.env(), running: f, log: lg}
		defer r.onHangup()()
	}
	ctx, stop := untilSignal(ctx, lg, r != nil)
	defer stop()
	return lg.fatal(withExitCode(p.run(ctx, cfg, j, r)))
}

// checked is like [flags.config], but returns an error if no member could use the configuration.
func (f *flags) checked(hostname string) (server.Config, []string, error) {
	cfg, warnings, wrong := f.config(hostname)
	j, err := f.joiner(slog.New(slog.DiscardHandler))
	likely := cfg
	if j != nil && !j.addressesGiven {
		likely = choose("localhost", clientPorts[0]).in(cfg)
	}
	return cfg, warnings, errors.Join(wrong, err, f.log.check(), likely.Validate())
}

// runMember runs a member until the context ends or the cluster removes the member. It also changes
// process-wide settings, which a library must not do.
func runMember(ctx context.Context, cfg server.Config, j *joiner, r *reloader) error {
	quietGRPC()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if j == nil || j.addressesGiven { // otherwise, it will choose free ports
		if err := tryPorts(ctx, cfg); err != nil {
			return cfg.NotStarted(err)
		}
	}
	if j != nil {
		defer j.release()
		var err error
		if cfg, err = j.prepare(ctx, cfg); err != nil {
			if ctx.Err() != nil {
				return nil // stopped while waiting
			}
			return cfg.NotStarted(err)
		}
	}
	loadGC()
	s, err := server.New(cfg)
	if err != nil {
		return err
	}
	if r != nil {
		again := s.Reload
		r.member.Store(&again)
	}
	tuneGC()
	go returnMemory(ctx)
	go notify(ctx, s.Ready(), r)
	if j != nil {
		joining := make(chan struct{})
		go func() { defer close(joining); j.finish(ctx, s.Ready(), s.Learner) }()
		defer func() { stop(); <-joining }()
	}
	err = s.Run(ctx)
	if err == nil && ctx.Err() == nil {
		cfg.Logger.Info("removed from the cluster; the data directory can be deleted",
			"data-dir", cfg.DataDir)
	}
	return err
}

// tryPorts opens a member's ports and closes them again. An unusable port must be detected before a
// cluster is founded or asked to add this member. Otherwise, the founded cluster would remain, and
// the next start would continue it even with other flags.
func tryPorts(ctx context.Context, cfg server.Config) (err error) {
	var open []net.Listener
	defer func() {
		for _, l := range open {
			err = fault.Join(err, l.Close())
		}
	}()
	for _, u := range slices.Concat(cfg.URLs.ListenClient, cfg.URLs.ListenClientHTTP,
		cfg.URLs.ListenPeer, cfg.URLs.ListenMetrics) {
		if u.Scheme == "unix" || u.Scheme == "unixs" {
			// closing a socket would leave its file behind, or remove the file of another process
			continue
		}
		l, err := listen.Listen(ctx, u)
		if err != nil {
			return err
		}
		open = append(open, l)
	}
	return nil
}

// notify notifies systemd when the member starts serving and when it stops, if systemd started this
// process. This supports units with Type=notify, such as Debian's unit for etcd.
func notify(ctx context.Context, ready <-chan struct{}, r *reloader) {
	select {
	case <-ready:
		if r != nil {
			r.serving.Store(true)
		}
		_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
		<-ctx.Done()
		_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	case <-ctx.Done():
	}
}

// untilSignal returns a context that ends at the first SIGINT or SIGTERM. It also ends at SIGHUP,
// which means that the terminal was closed, unless SIGHUP is ignored or reloads files. A second
// signal ends the process immediately, so that a hanging shutdown does not require kill -9. SIGPIPE
// is ignored, because the reader of the log might be gone.
func untilSignal(ctx context.Context, lg *processLog, reloads bool) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !reloads && !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	logger.SurviveBrokenPipe()
	done := make(chan struct{})
	go func() {
		s := stopOnSignal(ctx, signals, done, func(s os.Signal) {
			lg.Info("stopping on a signal", "signal", s.String())
			cancel()
		})
		if s != nil {
			lg.Error("stopped by a second signal, without waiting", "signal", s.String())
			lg.flush()
			os.Exit(1)
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(signals)
		close(done)
		cancel()
	})
}

// duplicateSignalTime is how long after the first signal another signal counts as the same request.
// timeout(1) and some supervisors signal a process and then its process group.
const duplicateSignalTime = 500 * time.Millisecond

// stopOnSignal ends the context at the first signal by calling stop. If a later signal demands an
// immediate exit, stopOnSignal returns that signal. It returns nil when done is closed.
func stopOnSignal(
	ctx context.Context, signals <-chan os.Signal, done <-chan struct{}, stop func(os.Signal),
) os.Signal {
	var first time.Time
	for {
		select {
		case <-done:
			return nil
		case s := <-signals:
			if ctx.Err() == nil {
				first = time.Now()
				stop(s)
			} else if time.Since(first) > duplicateSignalTime {
				return s
			}
		}
	}
}

// quietGRPC disables gRPC's own log unless gRPC's environment variable enables it. That log
// consists of unstructured lines that any client can trigger. quietGRPC takes effect only once,
// because gRPC reads its logger without a lock.
var quietGRPC = sync.OnceFunc(func() {
	if os.Getenv("GRPC_GO_LOG_SEVERITY_LEVEL") == "" {
		grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	}
})

// printVersion begins with the same line as etcd, because programs that start etcd parse that line.
func printVersion(w io.Writer) {
	fmt.Fprintf(w, "etcd Version: %s\nLeasehold Version: %s\nGo Version: %s\nGo OS/Arch: %s/%s\n",
		version.EtcdVersion, version.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// complete returns the flags that begin with the typed text.
func complete(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return newFlags().complete(typed)
}

func (f *flags) complete(typed string) ([]string, cobra.ShellCompDirective) {
	if !strings.HasPrefix(typed, "-") {
		return nil, cobra.ShellCompDirectiveDefault // the value of a flag, possibly a file name
	}
	var offers []string
	for _, s := range f.sections {
		for _, name := range s.names {
			if strings.HasPrefix("--"+name, typed) {
				offers = append(offers, "--"+name+"\t"+f.fs.Lookup(name).Usage)
			}
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	return name
}
