package serve

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/server"
	servers "leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// role is the environment variable that makes the test binary act as the program under test.
const role = "LEASEHOLD_TEST_ROLE"

// TestMain runs the command instead of the tests if a test started this process. The role "member"
// is the real command, and "stuck" is a member that does not stop.
func TestMain(m *testing.M) {
	p := process{env: os.Environ, hostname: hostname, run: runMember}
	switch os.Getenv(role) {
	case "":
		quietGRPC() // must run before the test's own connections start to log
		os.Exit(m.Run())
	case "stuck":
		p.run = func(ctx context.Context, cfg server.Config, _ *joiner, _ *reloader) error {
			cfg.Logger.Info("ready to serve client requests")
			<-ctx.Done()
			cfg.Logger.Info("hangs")
			select {}
		}
	}
	c := command(p)
	c.SetArgs(os.Args[1:])
	if err := c.Execute(); err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
		os.Exit(1)
	}
	os.Exit(0)
}

// program is a running command and its log.
type program struct {
	t   *testing.T
	cmd *exec.Cmd
	log *bufio.Scanner
}

func run(t *testing.T, as string, args ...string) *program {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), role+"="+as)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &program{t, cmd, bufio.NewScanner(stderr)}
}

// until reads the log up to the first line that contains text.
func (p *program) until(text string) {
	p.t.Helper()
	var seen []string
	for p.log.Scan() {
		seen = append(seen, p.log.Text())
		if strings.Contains(p.log.Text(), text) {
			return
		}
	}
	p.t.Fatalf("no line with %q in:\n%s", text, strings.Join(seen, "\n"))
}

func (p *program) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exit reads the rest of the log and returns the exit code.
func (p *program) exit() int {
	for p.log.Scan() {
		continue
	}
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		p.t.Error(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// TestServeAndStop checks that a member reports when it is serving, shuts down cleanly on SIGTERM
// or SIGINT, and restarts with its existing data.
func TestServeAndStop(t *testing.T) {
	tier.RealTime(t)
	dir := t.TempDir()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		addr := servers.MustFreeAddr()
		p := run(t, "member", "--data-dir", dir, "--listen-client-urls", "http://"+addr,
			"--listen-peer-urls", "http://"+servers.MustFreeAddr())
		p.until("ready to serve client requests")
		resp, err := http.Get("http://" + addr + "/version")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if !strings.Contains(string(body), `"etcdserver":"3.7.3"`) {
			t.Errorf("version %s", body)
		}
		p.signal(s)
		p.until("stopping on a signal")
		if code := p.exit(); code != 0 {
			t.Errorf("after %v: exit code %d", s, code)
		}
	}
}

// TestSecondSignal checks that a later signal ends a shutdown that hangs.
func TestSecondSignal(t *testing.T) {
	tier.Campaign(t)
	p := run(t, "stuck")
	p.until("ready")
	p.signal(syscall.SIGTERM)
	p.until("hangs")
	ended := make(chan struct{})
	go func() {
		again := time.NewTicker(sameStop / 4)
		defer again.Stop()
		for {
			select {
			case <-again.C:
				_ = p.cmd.Process.Signal(syscall.SIGTERM)
			case <-ended:
				return
			}
		}
	}()
	code := p.exit()
	close(ended)
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
}

// TestSameSignalTwice checks that a duplicate signal does not interrupt an orderly shutdown.
// timeout(1) sends its signal both to the process and to its group.
func TestSameSignalTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, patience := range []time.Duration{0, sameStop, sameStop + time.Millisecond} {
			ctx, stop := context.WithCancel(t.Context())
			signals, done := make(chan os.Signal, 2), make(chan struct{})
			var by os.Signal
			var wg sync.WaitGroup
			wg.Go(func() { by = impatient(ctx, signals, done, func(os.Signal) { stop() }) })
			signals <- syscall.SIGTERM
			synctest.Wait()
			if ctx.Err() == nil {
				t.Error("the first signal stops nothing")
			}
			time.Sleep(patience)
			signals <- syscall.SIGINT
			synctest.Wait()
			close(done)
			wg.Wait()
			if late := patience > sameStop; late != (by != nil) {
				t.Errorf("a second signal after %v: ended by %v", patience, by)
			}
		}
	})
}

// TestPortTaken checks that a member that cannot open its ports does not found a cluster, so the
// user can still choose other flags.
func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken, free := "http://"+l.Addr().String(), "http://127.0.0.1:0"
	for _, name := range []string{
		"--listen-client-urls", "--listen-peer-urls", "--listen-metrics-urls",
	} {
		dir := filepath.Join(t.TempDir(), "data")
		args := []string{"--data-dir", dir}
		for _, other := range []string{"--listen-client-urls", "--listen-peer-urls", name} {
			url := free
			if other == name {
				url = taken
			}
			args = append(args, other, url)
		}
		f := newFlags()
		if err := f.parse(args); err != nil {
			t.Fatal(err)
		}
		cfg, _, err := f.config("myhost")
		if err != nil {
			t.Fatal(err)
		}
		cfg.Logger = slog.New(slog.DiscardHandler)
		if err := runMember(t.Context(), cfg, nil, nil); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the data directory is there (%v)", name, err)
		}
	}
}
