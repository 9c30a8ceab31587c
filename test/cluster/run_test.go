package cluster

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// workEnv is the environment variable that turns this binary into a worker. Its value is the URL of
// the resource.
const workEnv = "LEASEHOLD_TEST_WORK"

// toil writes to the resource in an endless loop, always with the token it was given, like a
// program under "leasehold run".
func toil(url string) {
	url += "?token=" + os.Getenv("LEASEHOLD_TOKEN") + "&pid=" + strconv.Itoa(os.Getpid())
	for range time.Tick(2 * time.Millisecond) {
		// The worker ignores the resource's answer.
		if resp, err := http.Post(url, "text/plain", strings.NewReader("work")); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
}

// resource is protected by the lock. It accepts writes with the highest token so far and rejects
// writes with a smaller one.
type resource struct {
	mu     sync.Mutex
	token  uint64 // the highest token so far
	pid    string // the process with that token
	writes int    // number of accepted writes
	terms  int    // number of tokens seen
	late   int    // writes with a smaller token, which would succeed without fencing
	sinned map[string]bool
	wrong  []string
}

func (r *resource) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	token, err := strconv.ParseUint(req.FormValue("token"), 10, 64)
	pid := req.FormValue("pid")
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil || token == 0:
		r.wrong = append(r.wrong, fmt.Sprintf("worker %s has token %q", pid, req.FormValue("token")))
	case token < r.token:
		r.late++
		r.sinned[pid] = true
		http.Error(w, "a higher token was seen", http.StatusConflict)
	case token > r.token:
		r.token, r.pid = token, pid
		r.terms++
		r.writes++
	case pid != r.pid:
		r.wrong = append(r.wrong, fmt.Sprintf("%s and %s have token %d", r.pid, pid, token))
	default:
		r.writes++
	}
}

func (r *resource) holder() (pid, terms int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, _ = strconv.Atoi(r.pid) // 0 if no process has written yet
	return pid, r.terms
}

// runner is a "leasehold run" process that is restarted whenever it exits.
type runner struct {
	command func() *exec.Cmd
	log     string

	mu  sync.Mutex
	now *process.Process
}

// keep restarts the process until stop is closed.
func (r *runner) keep(t *testing.T, stop <-chan struct{}) {
	for {
		p, err := process.Start(r.command(), r.log, fmt.Sprintf("--- launched at %v", now()))
		if err != nil {
			t.Error(err)
			return
		}
		r.mu.Lock()
		r.now = p
		r.mu.Unlock()
		select {
		case <-p.Done():
		case <-stop:
			_ = p.Signal(syscall.SIGCONT)
			_ = p.Signal(syscall.SIGKILL) // the worker exits with it
			<-p.Done()
			return
		}
	}
}

// signal sends a signal to the current process.
func (r *runner) signal(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.now.Signal(s)
}

// pid returns the process's ID.
func (r *runner) pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.PID()
}

// TestRun checks fencing tokens from end to end. Many workers run under "leasehold run --lock" with
// the same lock, and write to a resource that checks tokens, while workers and members are killed
// and paused. The resource never receives the same token from two processes, and rejects writes
// with a smaller token than it has seen. The test logs the number of rejected writes. Without
// fencing they would succeed, because a process may be paused between the check and the write (rule
// 2).
func TestRun(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	c := newCluster(t, 3)
	lasts, n := 10*time.Second, 6
	if *longFlag {
		lasts, n = 5*time.Minute, 20
	}
	res := &resource{sinned: make(map[string]bool)}
	srv := httptest.NewServer(res)
	defer srv.Close()
	var endpoints []string
	for _, m := range c.members {
		endpoints = append(endpoints, m.url)
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	runners := make([]*runner, n)
	for i := range runners {
		r := &runner{
			log: filepath.Join(t.TempDir(), fmt.Sprintf("run%d.log", i)),
			command: func() *exec.Cmd {
				cmd := exec.Command(server.Path(t), "run", "--lock", "the-lock", "--ttl", "1s",
					"--endpoints", strings.Join(endpoints, ","), "--", os.Args[0])
				cmd.Env = append(os.Environ(), workEnv+"="+srv.URL)
				return cmd
			},
		}
		runners[i] = r
		all.Go(func() { r.keep(t, stop) })
	}
	harness.Eventually(t, "a worker is active", func() error {
		if _, terms := res.holder(); terms == 0 {
			return fmt.Errorf("no worker is active: %s", process.Tail(runners[0].log))
		}
		return nil
	})
	rng := choices(t)
	for began := now(); now()-began < lasts; {
		f := runFaults[rng.IntN(len(runFaults))]
		f.run(c, &scene{runners: runners, resource: res, rng: rng})
	}
	c.serves()
	_, before := res.holder()
	harness.Eventually(t, "the lock moves on when its worker dies", func() error {
		runFaults[1].run(c, &scene{runners: runners, resource: res, rng: rng})
		if _, terms := res.holder(); terms == before {
			return fmt.Errorf("it does not after %d", terms)
		}
		return nil
	})
	close(stop)
	all.Wait()
	res.mu.Lock()
	defer res.mu.Unlock()
	for _, w := range res.wrong {
		t.Error(w)
	}
	t.Logf("%d holders wrote %d times. %d writes came from %d holders after their leases: "+
		"without fencing they would have succeeded", res.terms, res.writes, res.late, len(res.sinned))
}

// scene is the state of TestRun.
type scene struct {
	runners  []*runner
	resource *resource
	rng      *rand.Rand
}

// holding returns the runner that holds the lock, or any runner if none seems to hold it.
func (s *scene) holding() (r *runner, worker int) {
	worker, _ = s.resource.holder()
	for _, r := range s.runners {
		if parent(worker) == r.pid() {
			return r, worker
		}
	}
	return s.runners[s.rng.IntN(len(s.runners))], 0
}

// parent returns the process ID of a process's parent, or 0 if the process has exited.
func parent(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	id, _ := strconv.Atoi(fields[1])
	return id
}

// runFaults lists faults of the cluster and of the holders of a lock with a TTL of one second.
var runFaults = []struct {
	name string
	run  func(*cluster, *scene)
}{
	{"the holder's runner is killed", func(c *cluster, s *scene) {
		r, _ := s.holding()
		r.signal(syscall.SIGKILL)
		c.wait(between(s.rng, 100, 1500))
	}},
	{"the worker is killed", func(c *cluster, s *scene) {
		if _, worker := s.holding(); worker != 0 {
			_ = syscall.Kill(worker, syscall.SIGKILL)
		}
		c.wait(between(s.rng, 100, 500))
	}},
	{"the holder and its worker are stopped", func(c *cluster, s *scene) {
		r, worker := s.holding()
		r.signal(syscall.SIGSTOP)
		s.stopped(c, worker, between(s.rng, 500, 3000))
		r.signal(syscall.SIGCONT)
	}},
	{"only the holder's runner is stopped", func(c *cluster, s *scene) {
		r, _ := s.holding()
		r.signal(syscall.SIGSTOP)
		c.wait(between(s.rng, 500, 3000))
		r.signal(syscall.SIGCONT)
	}},
	{"only the worker is stopped", func(c *cluster, s *scene) {
		_, worker := s.holding()
		s.stopped(c, worker, between(s.rng, 500, 2000))
	}},
	{"a waiting runner is stopped", func(c *cluster, s *scene) {
		r := s.runners[s.rng.IntN(len(s.runners))]
		r.signal(syscall.SIGSTOP)
		c.wait(between(s.rng, 100, 2000))
		r.signal(syscall.SIGCONT)
	}},
	{"the leader is killed", func(c *cluster, s *scene) {
		c.kill(c.leader(), between(s.rng, 100, 1000))
	}},
	{"a member is stopped", func(c *cluster, s *scene) {
		c.stop(c.members[s.rng.IntN(len(c.members))], between(s.rng, 500, 2000))
	}},
}

// stopped pauses a worker for a while.
func (s *scene) stopped(c *cluster, worker int, d time.Duration) {
	if worker != 0 {
		_ = syscall.Kill(worker, syscall.SIGSTOP)
	}
	c.wait(d)
	if worker != 0 {
		_ = syscall.Kill(worker, syscall.SIGCONT)
	}
}
