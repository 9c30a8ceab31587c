package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"leasehold.dev/internal/load"
	"leasehold.dev/test/process"
)

// A Target is a type of server that can be started.
type Target struct {
	// Name is the name used in reports: "leasehold", "etcd", "ceiling", "synced".
	Name string
	// Path is the path of the binary. Args holds the arguments that precede the flags added by
	// Start.
	Path string
	Args []string
	// Ceiling marks the server that stores nothing. It takes one flag, and is a single process no
	// matter how many members are requested. Workloads that need a store do not run on it.
	Ceiling bool
	// Synced marks a ceiling that writes each request to a file and syncs the file before it
	// answers. Many requests share a sync. A durable server must do at least that.
	Synced bool
	// Open opens a session of the server's own client. If Open is nil, the server has no such
	// client, and workloads with sessions do not run on the target.
	Open func(endpoints []string) (Session, error)
	// Foreign is set for a server that does not support etcd's API.
	Foreign *Foreign
	// WarmUp is how long the server is under load before it is measured. It is set for servers that
	// need longer than others, such as virtual machines with a just-in-time compiler.
	WarmUp time.Duration

	// Users is the number of users. Connections are assigned to them in turn. If Users is 0, access
	// control is off.
	Users int
	// Audit makes members write an audit log of every change.
	Audit bool

	secure bool // each member also has an address with TLS
}

// Foreign describes a server that does not support etcd's API. It consists of one process, and only
// workloads with sessions but without leases run on it.
type Foreign struct {
	// Prepare prepares an empty directory for a server on an address. It returns the arguments that
	// follow Target.Args.
	Prepare func(dir, addr string) ([]string, error)
	// Answers returns nil once the server on an address is ready.
	Answers func(ctx context.Context, addr string) error
}

// A Server is a started target, which is one member or a cluster. Only one goroutine may call its
// methods.
type Server struct {
	Target Target

	members []*member
	dir     string
	tokens  []string // tokens of the users
}

// Start starts the target with the given number of members, on free loopback ports and with empty
// directories. It returns once each member answers a linearizable read.
func (t Target) Start(ctx context.Context, members int) (*Server, error) {
	if t.Ceiling {
		members = 1
	}
	dir, err := os.MkdirTemp("", "leasehold-bench-")
	if err != nil {
		return nil, err
	}
	ports := make([]string, 3*members)
	for i := range ports {
		ports[i] = process.MustFreeAddr()
	}
	s := &Server{Target: t, dir: dir}
	for i := range members {
		flags, err := t.flags(dir, ports, i)
		if err != nil {
			return nil, errors.Join(err, s.Stop())
		}
		m := &member{
			target:   t.Name,
			path:     t.Path,
			args:     slices.Concat(t.Args, flags),
			log:      filepath.Join(dir, memberName(i)+".log"),
			endpoint: ports[i],
			secure:   ports[2*members+i],
			foreign:  t.Foreign,
		}
		if m.control, err = dial([]string{m.endpoint}, 1); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
		s.members = append(s.members, m)
	}
	if _, err := s.run(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	if t.Users > 0 {
		if err := s.restrict(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("bench: turn access control on: %w", err), s.Stop())
		}
	}
	return s, nil
}

func memberName(i int) string { return fmt.Sprintf("m%d", i+1) }

// flags returns the flags of member i. The first third of the addresses is for clients, the second
// third for other members, and the last third for clients with TLS.
func (t Target) flags(dir string, ports []string, i int) ([]string, error) {
	switch {
	case t.Synced:
		log := filepath.Join(dir, "log")
		return []string{"-serve-ceiling", ports[i], "-ceiling-log", log}, nil
	case t.Ceiling:
		return []string{"-serve-ceiling", ports[i]}, nil
	case t.Foreign != nil:
		return t.Foreign.Prepare(dir, ports[i])
	}
	n := len(ports) / 3
	all := make([]string, n)
	for k := range all {
		all[k] = memberName(k) + "=http://" + ports[n+k]
	}
	client, peer := "http://"+ports[i], "http://"+ports[n+i]
	list := []string{
		"--name", memberName(i),
		"--data-dir", filepath.Join(dir, memberName(i)),
		"--listen-client-urls", client,
		"--advertise-client-urls", client,
		"--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer,
		"--initial-cluster", strings.Join(all, ","),
		"--initial-cluster-state", "new",
		"--quota-backend-bytes", fmt.Sprint(int64(8 << 30)),
		"--log-level", "error",
	}
	if t.Users > 0 {
		list = append(list, "--bcrypt-cost", "4") // speeds up the creation of users
	}
	if t.Audit {
		list = append(list, "--audit-log-level", "writes",
			"--audit-log", filepath.Join(dir, memberName(i)+".audit"))
	}
	if t.secure {
		both := client + ",https://" + ports[2*n+i]
		list = append(list, "--listen-client-urls", both, "--auto-tls")
	}
	return list, nil
}

// run starts every process and waits until all are ready. It returns how long that took.
func (s *Server) run(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	for _, m := range s.members {
		if err := m.start(); err != nil {
			return 0, err
		}
	}
	for _, m := range s.members {
		if err := m.waitReady(ctx); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// Restart kills every member and starts all of them again with the same data. It returns the time
// from the start of the first process until all members have answered a linearizable read.
func (s *Server) Restart(ctx context.Context) (time.Duration, error) {
	if err := s.kill(); err != nil {
		return 0, err
	}
	return s.run(ctx)
}

// Usage returns the total resource usage of the members' processes so far.
func (s *Server) Usage() (load.Usage, error) {
	var sum load.Usage
	for _, m := range s.members {
		u, err := readUsage(m.PID())
		if err != nil {
			return load.Usage{}, err
		}
		sum.CPU += u.CPU
		sum.RSS += u.RSS
	}
	return sum, nil
}

// Stop ends the processes and removes their directories.
func (s *Server) Stop() error {
	var errs []error
	errs = append(errs, s.kill())
	for _, m := range s.members {
		errs = append(errs, m.control.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// kill kills all members before it waits for any of them, like a power failure.
func (s *Server) kill() error {
	var errs []error
	for _, m := range s.members {
		errs = append(errs, m.kill())
	}
	for _, m := range s.members {
		m.wait()
	}
	return errors.Join(errs...)
}
