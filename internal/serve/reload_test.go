package serve

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"leasehold.dev/server"
	servers "leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

func text(c server.Config) string { return fmt.Sprintf("%+v", c) }

// TestReload checks that reloading the file applies the log level and format immediately, even to
// existing loggers, and lists settings that require a restart. A file with an error has no effect.
// Flags still take precedence.
func TestReload(t *testing.T) {
	path := file(t, "log-level: info\nname: a\n")
	args := []string{"--config-file", path}
	setup := func(args ...string) (*reloader, *bytes.Buffer) {
		f := newFlags()
		if _, err := f.read(args, nil); err != nil {
			t.Fatal(err)
		}
		out := new(bytes.Buffer)
		lg, err := f.log.open(out, out)
		if err != nil {
			t.Fatal(err)
		}
		return &reloader{args: args, running: f, log: lg}, out
	}
	r, out := setup(args...)
	early := r.log.With("part", "x").WithGroup("g")
	says := func(lg *slog.Logger) string {
		out.Reset()
		lg.Debug("hello", "n", 1)
		r.log.flush()
		return out.String()
	}
	write := func(text string) string {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out.Reset()
		r.reload()
		r.log.flush()
		return out.String()
	}
	if s := says(early); s != "" {
		t.Errorf("at level info: %s", s)
	}
	s := write("log-level: debug\nname: b\n")
	if !strings.Contains(s, `"changed":"log-level=debug"`) ||
		!strings.Contains(s, `"settings":"name"`) {
		t.Errorf("the log of the reload: %s", s)
	}
	if s := says(early); !strings.Contains(s, `"part":"x","g":{"n":1}`) {
		t.Errorf("at level debug: %s", s)
	}
	s = write("log-level: debug\nlog-format: console\nname: b\n")
	if !strings.Contains(s, "settings=name") {
		t.Errorf("a change that waits is told once only: %s", s)
	}
	if s := says(early); !strings.Contains(s, "msg=hello part=x g.n=1") {
		t.Errorf("with format console: %s", s)
	}
	for _, bad := range []string{"log-level: loud\n", "nmae: x\n", "log-level: [\n"} {
		if s := write(bad); !strings.Contains(s, "level=ERROR") || !strings.Contains(s, path) {
			t.Errorf("%q: %s", bad, s)
		}
		if s := says(early); s == "" {
			t.Errorf("%q has changed something", bad)
		}
	}
	again := 0
	member := func() { again++ }
	r.member.Store(&member)
	write("log-level: debug\n")
	write("log-level: [\n")
	write("log-level: debug\n")
	if again != 3 {
		t.Errorf("the member has read its files again %d times, not 3", again)
	}
	r, out = setup(append(args[:2:2], "--log-level=warn")...)
	write("log-level: debug\n")
	if s := says(r.log.Logger); s != "" {
		t.Errorf("the file has beaten the flag: %s", s)
	}
}

// TestHangup checks that a process reloads its file on SIGHUP and continues. It notifies systemd
// when it starts, reloads and stops.
func TestHangup(t *testing.T) {
	tier.Campaign(t)
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// instead of waiting forever
	if err := l.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", socket)
	expectNotify := func(want string) {
		t.Helper()
		b := make([]byte, 1000)
		n, err := l.Read(b)
		if got := string(b[:n]); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("systemd is told %q, not %q (%v)", got, want, err)
		}
	}
	path := file(t, "log-level: error\ndata-dir: "+t.TempDir()+"\n"+
		"listen-client-urls: [http://"+servers.MustFreeAddr()+"]\n"+
		"listen-peer-urls: http://"+servers.MustFreeAddr()+"\n")
	p := run(t, "member", "--config-file", path)
	expectNotify("READY=1")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("error"), []byte("info"), 1)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	expectNotify("RELOADING=1\nMONOTONIC_USEC=")
	expectNotify("READY=1")
	p.until("reloaded the configuration file")
	p.signal(syscall.SIGTERM)
	expectNotify("STOPPING=1")
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
