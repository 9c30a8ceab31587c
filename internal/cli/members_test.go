package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"leasehold.dev/internal/serve"
	"leasehold.dev/test/process"
)

// built is the Leasehold server, built when a test first needs it.
var built struct {
	sync.Once
	dir, path string
	err       error
}

// serverBinary returns the command line of the server under test. The Leasehold binary needs the
// word "serve" before its flags.
func serverBinary(t *testing.T) []string {
	t.Helper()
	if *serverFlag != "" {
		return []string{*serverFlag}
	}
	if err := process.DependOnSources(); err != nil {
		t.Fatal(err)
	}
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "leasehold-cli-"); built.err == nil {
			built.path, built.err = process.Build(context.Background(), built.dir)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return []string{built.path, "serve"}
}

// member is one server in a script's cluster.
type member struct{ name, client, peer string }

// newMembers returns the servers that a script needs.
func newMembers(env *testscript.Env) []member {
	n := 1
	if strings.HasPrefix(filepath.Base(env.WorkDir), "script-three_") {
		n = 3
	}
	var all []member
	for i := range n {
		name := fmt.Sprintf("m%d", i+1)
		all = append(all, member{name, process.MustFreeAddr(), process.MustFreeAddr()})
	}
	return all
}

// startAll starts a script's servers and waits until they are ready.
func startAll(env *testscript.Env, binary []string, all []member) error {
	var cluster []string
	for _, m := range all {
		cluster = append(cluster, m.name+"=http://"+m.peer)
	}
	failed := make(chan error, len(all))
	for _, m := range all {
		args := slices.Concat(binary[1:], m.flags(env),
			[]string{"--initial-cluster=" + strings.Join(cluster, ",")})
		if len(all) > 1 { // otherwise, an election would appear in the transcript
			args = append(args, "--election-timeout=4000")
		}
		if file := "auth-" + m.name + ".yaml"; exists(filepath.Join(env.WorkDir, file)) {
			args = append(args, "--auth-config="+file)
		}
		cmd := exec.Command(binary[0], args...)
		cmd.Dir = env.WorkDir
		if !strings.HasPrefix(filepath.Base(env.WorkDir), "script-own_") {
			cmd.Env = append(os.Environ(), "LEASEHOLD_MIN_PASSWORD_LENGTH=1") // as in etcd
		}
		log, err := cmd.StderrPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		env.Defer(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		go func() { failed <- untilReady(cmd, log) }()
	}
	for range all {
		if err := <-failed; err != nil {
			return err
		}
	}
	return nil
}

// startHere starts a script's only member in the test process.
func startHere(env *testscript.Env, _ []string, all []member) error {
	m := all[0]
	c := serve.Command()
	args := append(m.flags(env), "--initial-cluster="+m.name+"=http://"+m.peer, "--bcrypt-cost=4")
	if !strings.HasPrefix(filepath.Base(env.WorkDir), "script-own_") {
		args = append(args, "--min-password-length=1") // as in etcd
	}
	c.SetArgs(args)
	ctx, stop := context.WithCancel(context.Background())
	r, w := io.Pipe()
	log := bufio.NewScanner(r)
	c.SetErr(w)
	ended := make(chan error, 1)
	go func() {
		err := c.ExecuteContext(ctx)
		ended <- err
		w.CloseWithError(err)
	}()
	env.Defer(func() { stop(); <-ended })
	var said strings.Builder
	for log.Scan() {
		fmt.Fprintln(&said, log.Text())
		if strings.Contains(log.Text(), "ready to serve client requests") {
			go io.Copy(io.Discard, r)
			return nil
		}
	}
	return fmt.Errorf("the server did not start: %w\n%s", log.Err(), said.String())
}

// flags returns the member's flags that do not depend on the other members.
func (m *member) flags(env *testscript.Env) []string {
	return []string{
		"--name=" + m.name, "--data-dir=" + filepath.Join(env.WorkDir, m.name),
		"--listen-client-urls=http://" + m.client, "--advertise-client-urls=http://" + m.client,
		"--listen-peer-urls=http://" + m.peer, "--initial-advertise-peer-urls=http://" + m.peer,
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func untilReady(cmd *exec.Cmd, log io.Reader) error {
	deadline := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer deadline.Stop()
	var said bytes.Buffer
	lines := bufio.NewScanner(io.TeeReader(log, &said))
	for lines.Scan() {
		if strings.Contains(lines.Text(), "ready to serve client requests") {
			go io.Copy(io.Discard, log)
			return nil
		}
	}
	return fmt.Errorf("the server did not start:\n%s", said.String())
}
