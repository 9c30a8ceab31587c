package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"leasehold.dev/client"
	"leasehold.dev/test/harness"
	osprocess "leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

var (
	server     harness.Binary
	roundsFlag = flag.Int("rounds", 24, "how often TestStopped stops the leader of each election")
)

// A controller is a process of this test binary started with these variables.
const (
	electionVariable = "TEST_ELECTION" // 0: with our lock; 1: with client-go's lock
	identityVariable = "TEST_IDENTITY"
	memberVariable   = "TEST_MEMBER"   // Leasehold endpoint
	resourceVariable = "TEST_RESOURCE" // base URL of the test's HTTP server
)

func TestMain(m *testing.M) {
	if os.Getenv(electionVariable) != "" {
		control()
		return
	}
	os.Exit(server.Main(m))
}

// control campaigns in an election and keeps writing while it leads.
func control() {
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	id, base := os.Getenv(identityVariable), os.Getenv(resourceVariable)
	var d time.Duration
	var lock resourcelock.Interface
	token := func() (uint64, error) { return 0, nil }
	wrap := func(c leaderelection.LeaderCallbacks) leaderelection.LeaderCallbacks { return c }
	if os.Getenv(electionVariable) == "0" {
		c, err := client.New(client.Config{Endpoints: []string{os.Getenv(memberVariable)}})
		check(err)
		ours, err := New(Config{Client: c, Name: "test", Identity: id, TTL: ttl})
		check(err)
		d, lock, token, wrap = durations[0], ours, ours.Token, ours.Callbacks
	} else {
		c, err := coordinationclient.NewForConfig(&rest.Config{
			Host: base, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
		})
		check(err)
		d, lock = durations[1], &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "test", Name: "test"}, Client: c,
			LockConfig: resourcelock.ResourceLockConfig{Identity: id},
		}
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: d, RenewDeadline: 2 * d / 3, RetryPeriod: 2 * d / 15,
		ReleaseOnCancel: true,
		Callbacks: wrap(leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				token, err := token()
				if err != nil {
					return // the lead was lost immediately
				}
				r := report{Election: os.Getenv(electionVariable), Identity: id, Token: token}
				for ctx.Err() == nil {
					// Because of the pause, most stops fall between the check and the write.
					<-time.After(time.Millisecond)
					r.Term, err = r.post(base + "/write")
					check(err)
				}
				_, err = r.post(base + "/end")
				check(err)
			},
			OnStoppedLeading: func() {},
		}),
	})
	check(err)
	for {
		elector.Run(context.Background())
	}
}

// report is a write by a leader, or its final message.
type report struct {
	Election, Identity string
	Term               int // 0 in the first write
	Token              uint64
}

// post sends the report and returns the leader's term.
func (r report) post(url string) (term int, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	answer, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	return term, json.NewDecoder(answer.Body).Decode(&term)
}

// electorate contains the processes of one election and the resource to which its leaders write.
type electorate struct {
	processes map[string]*osprocess.Process
	began     chan report
	ended     chan report

	order sync.Mutex // held while a report is processed
	resource
}

// take processes a leader's write or its final message.
func (e *electorate) take(r report, end bool) (term int) {
	e.order.Lock()
	defer e.order.Unlock()
	switch {
	case end:
		e.ended <- r
		return 0
	case r.Term == 0:
		r.Term = e.begin()
		e.began <- r
	}
	e.write(r.Term, r.Token)
	return r.Term
}

// round stops the leader's process with SIGSTOP until another process leads. It then resumes the
// process and waits until it reports that its lead has ended.
func (e *electorate) round(t *testing.T, leader report) (next report) {
	t.Helper()
	<-time.After(rand.N(ttl))
	for len(e.began) > 0 { // the machine was so busy that the leader lost its lead
		leader = <-e.began
	}
	p := e.processes[leader.Identity]
	e.fault(leader.Term)
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := p.Signal(s); err != nil {
			t.Fatalf("%v: %v", s, err)
		}
		if s == syscall.SIGSTOP {
			next = await(t, e.began)
		}
	}
	for await(t, e.ended).Term != leader.Term {
	}
	return next
}

// TestStopped is TestFaults with real processes that are stopped with SIGSTOP. It reports how long
// it took until a successor led. It fails if a write by a leader using our lock was accepted after
// its successor's first write.
func TestStopped(t *testing.T) {
	tier.Campaign(t)
	dir, member := t.TempDir(), osprocess.MustFreeAddr()
	start := func(name string, cmd *exec.Cmd) *osprocess.Process {
		p, err := osprocess.Start(cmd, filepath.Join(dir, name+".log"), "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = p.Signal(syscall.SIGKILL)
			<-p.Done()
			if t.Failed() {
				t.Logf("%s:\n%s", name, p.Tail())
			}
		})
		return p
	}
	start("member", exec.Command(server.Path(t), "serve", "--data-dir", filepath.Join(dir, "data"),
		"--listen-client-urls", "http://"+member, "--advertise-client-urls", "http://"+member,
		"--listen-peer-urls", "http://"+osprocess.MustFreeAddr()))
	var elections []*electorate
	for range durations {
		elections = append(elections, &electorate{
			processes: map[string]*osprocess.Process{},
			began:     make(chan report, 10_000), ended: make(chan report, 10_000),
		})
	}
	s := httptest.NewServer(handler(elections))
	t.Cleanup(s.Close)
	for i, e := range elections {
		for j := range 3 {
			id := fmt.Sprintf("election-%d-controller-%d", i, j)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", electionVariable, i),
				identityVariable+"="+id, memberVariable+"="+member, resourceVariable+"="+s.URL)
			e.processes[id] = start(id, cmd)
		}
	}
	for i, name := range []string{"our lock", "client-go's"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := elections[i]
			leader := await(t, e.began)
			for range *roundsFlag {
				leader = e.round(t, leader)
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			e.report(t, name)
			if i == 0 && e.unfenced > 0 {
				t.Errorf("%d unfenced writes by leaders of our lock; want 0", e.unfenced)
			}
		})
	}
}

// handler serves the resources to which leaders write, and as much of the Kubernetes API as
// client-go's lock needs.
func handler(elections []*electorate) http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/write", "/end"} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			var got report
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			i := 0
			if got.Election != "0" {
				i = 1
			}
			fmt.Fprint(w, elections[i].take(got, path == "/end"))
		})
	}
	api := reach{new(leases), new(process)}.Leases("test")
	mux.HandleFunc("/apis/coordination.k8s.io/v1/namespaces/test/", func(w http.ResponseWriter, r *http.Request) {
		o := new(coordination.Lease)
		var err error
		if r.Method != http.MethodGet {
			if err := json.NewDecoder(r.Body).Decode(o); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		switch r.Method {
		case http.MethodGet:
			o, err = api.Get(r.Context(), "test", metav1.GetOptions{})
		case http.MethodPost:
			o, err = api.Create(r.Context(), o, metav1.CreateOptions{})
		default:
			o, err = api.Update(r.Context(), o, metav1.UpdateOptions{})
		}
		w.Header().Set("Content-Type", "application/json")
		var answer any = o
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			s := status.Status()
			s.APIVersion, s.Kind = "v1", "Status"
			w.WriteHeader(int(s.Code))
			answer = s
		} else {
			o.APIVersion, o.Kind = coordination.SchemeGroupVersion.String(), "Lease"
		}
		_ = json.NewEncoder(w).Encode(answer) // a disconnected client needs no answer
	})
	return mux
}
