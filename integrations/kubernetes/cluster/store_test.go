package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"leasehold.dev/test/certs"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/process"
)

// store is a cluster of Leasehold members. They use TLS among themselves and with clients, and
// require certificates from both.
type store struct {
	t       *testing.T
	name    string
	command []string // a member's command before the flags
	ca      *certs.Authority
	members []*member
	admin   *clientv3.Client
}

// member is a single process of a store.
type member struct {
	name, data, log string
	client, peer    string // URLs
	admin           *clientv3.Client
	*process.Process
}

// startStore founds a cluster of n members. If command is given, it runs another server instead of
// the binary under test.
func startStore(t *testing.T, ca *certs.Authority, name string, n int, command ...string) *store {
	t.Helper()
	if command == nil {
		command = []string{server.Path(t), "serve"}
	}
	s := &store{t: t, name: name, command: command, ca: ca}
	dir := t.TempDir()
	var founders []string
	for i := range n {
		m := &member{
			name:   fmt.Sprintf("%s-%d", name, i),
			client: "https://" + process.MustFreeAddr(), peer: "https://" + process.MustFreeAddr(),
		}
		m.data, m.log = filepath.Join(dir, m.name), filepath.Join(dir, m.name+".log")
		ca.Issue(m.name)
		s.members = append(s.members, m)
		founders = append(founders, m.name+"="+m.peer)
	}
	identity := ca.Issue("admin")
	dial := func(endpoints ...string) *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{
			Endpoints: endpoints, TLS: ca.Client(identity), Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	for _, m := range s.members {
		m.admin = dial(m.client)
	}
	s.admin = dial(strings.Split(s.urls(","), ",")...)
	t.Cleanup(func() {
		for _, m := range s.members {
			_ = m.Signal(syscall.SIGKILL)
			<-m.Done()
			if t.Failed() {
				t.Logf("%s:\n%s", m.name, m.Tail())
			}
		}
	})
	for _, m := range s.members {
		s.launch(m, "--initial-cluster", strings.Join(founders, ","))
	}
	s.serves()
	return s
}

// urls joins the client URLs of all members.
func (s *store) urls(separator string) string {
	var list []string
	for _, m := range s.members {
		list = append(list, m.client)
	}
	return strings.Join(list, separator)
}

// launch starts a member's process without waiting for it.
func (s *store) launch(m *member, args ...string) {
	s.t.Helper()
	cert, key, ca := s.ca.Path(m.name+".pem"), s.ca.Path(m.name+".key"), s.ca.Path("ca.pem")
	cmd := exec.Command(s.command[0], append(append(s.command[1:len(s.command):len(s.command)],
		"--name", m.name, "--data-dir", m.data,
		"--listen-client-urls", m.client, "--advertise-client-urls", m.client,
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
		"--cert-file", cert, "--key-file", key, "--trusted-ca-file", ca, "--client-cert-auth",
		"--peer-cert-file", cert, "--peer-key-file", key, "--peer-trusted-ca-file", ca,
		"--peer-client-cert-auth"), args...)...)
	p, err := process.Start(cmd, m.log, "")
	if err != nil {
		s.t.Fatal(err)
	}
	m.Process = p
}

// serves waits until every member answers a linearizable read.
func (s *store) serves() {
	s.t.Helper()
	for _, m := range s.members {
		harness.Eventually(s.t, m.name+" serves", func() error {
			ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
			defer cancel()
			_, err := m.admin.Get(ctx, "ready")
			return err
		})
	}
}

// ctl runs a command of the binary.
func (s *store) ctl(args ...string) error {
	cmd := exec.Command(server.Path(s.t), args...)
	cmd.Env = harness.Environ("LEASEHOLD_CACERT="+s.ca.Path("ca.pem"),
		"LEASEHOLD_CERT="+s.ca.Path("admin.pem"), "LEASEHOLD_KEY="+s.ca.Path("admin.key"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return nil
}

// leader returns the member that leads.
func (s *store) leader() (leader *member) {
	s.t.Helper()
	harness.Eventually(s.t, s.name+" has a leader", func() error {
		for _, m := range s.members {
			ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
			r, err := s.admin.Status(ctx, m.client)
			cancel()
			if err == nil && r.Leader == r.Header.MemberId {
				leader = m
				return nil
			}
		}
		return errors.New("none")
	})
	return leader
}

// kill ends a member as a power failure would.
func (m *member) kill() {
	_ = m.Signal(syscall.SIGKILL)
	<-m.Done()
}

func (s *store) killAll() {
	for _, m := range s.members {
		m.kill()
	}
}

// restore restores a snapshot as a single-member cluster, and lets the others join with empty
// directories. No member may be running.
func (s *store) restore(snapshot string) {
	s.t.Helper()
	for _, m := range s.members {
		if err := os.RemoveAll(m.data); err != nil {
			s.t.Fatal(err)
		}
	}
	first := s.members[0]
	err := s.ctl("snapshot", "restore", snapshot, "--data-dir", first.data, "--name", first.name,
		"--initial-advertise-peer-urls", first.peer)
	if err != nil {
		s.t.Fatal(err)
	}
	s.launch(first)
	for _, m := range s.members[1:] {
		s.launch(m, "--join", first.client)
	}
	s.serves()
}

// count returns the number of keys with a prefix.
func (s *store) count(prefix string) int64 {
	s.t.Helper()
	r, err := s.admin.Get(s.t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		s.t.Fatal(err)
	}
	return r.Count
}

// revision returns the store's revision.
func (s *store) revision() int64 {
	s.t.Helper()
	r, err := s.admin.Get(s.t.Context(), "ready")
	if err != nil {
		s.t.Fatal(err)
	}
	return r.Header.Revision
}
