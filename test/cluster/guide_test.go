package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"leasehold.dev/test/certs"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// guide runs the commands of a document in a shell.
type guide struct {
	t           *testing.T
	binary, dir string
	env         []string
	replace     *strings.Replacer // for the document's addresses and paths
}

// A step is a command from a document and its expected exit code, taken from the command's comment.
type step struct {
	command string
	code    int
}

var endsWith = regexp.MustCompile(`: ends with (\d+)$`)

// steps returns the commands of a block. If a command's comment ends with ": ends with 9", the
// expected exit code is 9.
func (g *guide) steps(block string) (list []step) {
	g.t.Helper()
	block = regexp.MustCompile(` *\\\n *`).ReplaceAllString(strings.TrimSpace(block), " ")
	for line := range strings.Lines(block) {
		command, comment, _ := strings.Cut(strings.TrimSpace(line), "  #")
		s := step{command: g.replace.Replace(strings.TrimPrefix(command, "$ "))}
		if m := endsWith.FindStringSubmatch(comment); m != nil {
			s.code, _ = strconv.Atoi(m[1])
		}
		list = append(list, s)
	}
	return list
}

// runs runs the commands of a block. It retries each command until it exits with the expected code,
// because a member that has just started may lack some information.
func (g *guide) runs(block string) {
	g.t.Helper()
	for _, s := range g.steps(block) {
		g.run(s)
	}
}

func (g *guide) run(s step) {
	g.t.Helper()
	harness.Eventually(g.t, s.command, func() error {
		out, err := g.shell(s.command).CombinedOutput()
		code := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			code, err = exit.ExitCode(), nil
		}
		if err == nil && code != s.code {
			err = fmt.Errorf("exit code %d, want %d", code, s.code)
		}
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}

// shell returns a shell command in which leasehold runs the binary under test.
func (g *guide) shell(command string) *exec.Cmd {
	const call = `leasehold() { "$GUIDE_BINARY" "$@"; }; `
	cmd := exec.CommandContext(g.t.Context(), "sh", "-c", call+command)
	cmd.Dir = g.dir
	cmd.Env = slices.Concat(os.Environ(), []string{"GUIDE_BINARY=" + g.binary}, g.env)
	return cmd
}

// serves starts a member, waits until it is ready, and stops it.
func (g *guide) serves(s step) {
	g.t.Helper()
	log := filepath.Join(g.t.TempDir(), "log")
	// exec replaces the shell with the member, so the signal reaches the member.
	command := strings.Replace(s.command, "leasehold", `exec "$GUIDE_BINARY"`, 1)
	p, err := process.Start(g.shell(command), log, "")
	if err != nil {
		g.t.Fatal(err)
	}
	harness.Eventually(g.t, s.command, func() error {
		text, err := os.ReadFile(log)
		if err == nil && p.Ended() {
			g.t.Fatalf("%s has ended: %v\n%s", s.command, p.Wait(), text)
		}
		if err == nil && !strings.Contains(string(text), "ready to serve") {
			err = errors.New("not ready")
		}
		return err
	})
	if err := errors.Join(p.Signal(syscall.SIGTERM), p.Wait()); err != nil {
		g.t.Errorf("%s: %v\n%s", s.command, err, p.Tail())
	}
}

// blocks returns the code blocks of a document that follow a comment naming the test.
func blocks(t *testing.T, document, test string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "<!-- run by "+test+" -->\n```")[1:] {
		block, _, _ := strings.Cut(part, "```")
		list = append(list, block)
	}
	return list
}

// TestOperationsGuide runs the commands in docs/operations.md that are marked with its name. They
// run on a configuration file, a cluster of three members, the same cluster with one member
// stopped, and the cluster's backups.
func TestOperationsGuide(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	list := blocks(t, "../../docs/operations.md", "TestOperationsGuide")
	if len(list) != 4 {
		t.Fatalf("the document has %d blocks to run, want 4", len(list))
	}
	file, settings, restore, disasters := list[0], list[1], list[2], list[3]

	target := filepath.Join(t.TempDir(), "target")
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	c := startBackups(t, target, "--backup-schedule", "@every 2s", "--backup-log-interval", "100ms")
	first, last := c.members[0], c.members[2]
	g := &guide{t: t, binary: server.Path(t), dir: t.TempDir()}
	names := []string{"/var/lib/leasehold", last.data}
	for i, m := range c.members {
		names = append(names, fmt.Sprintf("10.0.0.%d:2379", i+1), strings.TrimPrefix(m.url, "http://"))
	}
	g.replace = strings.NewReplacer(names...)
	steps := g.steps(disasters)
	if len(steps) != 2 {
		t.Fatalf("%d steps in %s", len(steps), disasters)
	}
	g.run(steps[0])
	if err := last.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	g.run(steps[1])

	g.settings(file, settings)

	harness.Eventually(t, "a full backup exists", func() error {
		if len(listBackups(t, target).Fulls) == 0 {
			return errors.New("none")
		}
		return nil
	})
	for _, m := range c.members[:2] {
		m.kill()
	}
	g.replace = strings.NewReplacer("/mnt/backups", target,
		"/var/lib/leasehold", filepath.Join(t.TempDir(), "restored"), "http://10.0.0.1:2380", first.peer)
	g.runs(restore)
}

// settings runs the commands that use a configuration file.
func (g *guide) settings(file, commands string) {
	g.t.Helper()
	dir := g.t.TempDir()
	ca := certs.New(g.t)
	_ = ca.Issue("tls")
	clients, peers := process.MustFreeAddr(), "http://"+process.MustFreeAddr()
	g.replace = strings.NewReplacer("/etc/leasehold/tls/tls.crt", ca.Path("tls.pem"),
		"/etc/leasehold/tls/tls.key", ca.Path("tls.key"), "/etc/leasehold", dir,
		"/var/lib/leasehold", filepath.Join(dir, "data"), "10.0.0.1:2379", clients)
	kind, text, _ := strings.Cut(file, "\n")
	if kind != "yaml" {
		g.t.Fatalf("no file, but %q", kind)
	}
	path := filepath.Join(dir, "leasehold.yaml")
	if err := os.WriteFile(path, []byte(g.replace.Replace(text)), 0o600); err != nil {
		g.t.Fatal(err)
	}
	g.env = []string{
		"LEASEHOLD_LISTEN_PEER_URLS=" + peers, "LEASEHOLD_INITIAL_ADVERTISE_PEER_URLS=" + peers,
		"LEASEHOLD_ADVERTISE_CLIENT_URLS=https://" + clients,
	}
	for _, s := range g.steps(commands) {
		if strings.HasPrefix(s.command, "leasehold serve ") {
			g.serves(s)
		} else {
			g.run(s)
		}
	}
	g.env = nil
}
