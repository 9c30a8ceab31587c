package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"time"

	"leasehold.dev/internal/listen"
	"leasehold.dev/test/tier"
)

// childEnv is an environment variable that makes this test binary run as a member. Its value is the
// child's configuration.
const childEnv = "LEASEHOLD_TRANSPORT_CHILD"

// child is the configuration passed by the parent: the URL to listen on, and the parent's URL.
type child struct{ Listen, Parent string }

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		runChild(text)
		return
	}
	os.Exit(m.Run())
}

// runChild runs member 2 until it is killed.
func runChild(text string) {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	r := newRecorder()
	t := New(Config{
		Cluster: 1, Self: 2, Process: uint64(time.Now().UnixNano()), Formats: Formats{1, 1},
		Version: func() (uint8, uint64) { return 1, 0 }, Handler: r,
	})
	u, err := url.Parse(c.Listen)
	if err != nil {
		panic(err)
	}
	l, err := listen.Listen(context.Background(), *u)
	if err != nil {
		panic(err)
	}
	parent, err := url.Parse(c.Parent)
	if err != nil {
		panic(err)
	}
	mux := listen.NewMux(listen.MuxOptions{})
	go mux.Serve(l, nil)
	go t.Serve(mux.GRPC())
	t.Update([]Peer{{ID: 1, URLs: []url.URL{*parent}}})
	fmt.Println(l.Addr().String())
	for text := range r.got {
		t.Send(1, bytesMessage(text))
	}
}

// spawn starts a child and returns its URL.
func spawn(t *testing.T, a *member) (*exec.Cmd, url.URL) {
	t.Helper()
	text, err := json.Marshal(child{Listen: "http://127.0.0.1:0", Parent: a.url.String()})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, url.URL{Scheme: "http", Host: line[:len(line)-1]}
}

// TestKilledProcess checks that a process killed by SIGKILL is reported as gone immediately and
// only once. The test does not check how long this takes, because before patience runs out, only a
// refused connection can reveal the death.
func TestKilledProcess(t *testing.T) {
	tier.Campaign(t)
	a := start(t, 1, options{real: true})
	for range 5 {
		cmd, u := spawn(t, a)
		a.Update([]Peer{{ID: 2, URLs: []url.URL{u}}})
		a.Send(2, bytesMessage("echo"))
		if got := want(t, a.got); got != "echo" {
			t.Fatalf("received %q", got)
		}
		drain(a.gone) // the previous process, which had another URL
		before := time.Now()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if want(t, a.gone) != 2 {
			t.Fatal("wrong member")
		}
		t.Logf("gone after %v", time.Since(before))
		_ = cmd.Wait()
		pause(20 * time.Millisecond)
		never(t, "told again", a.gone)
	}
}

func drain[T any](c <-chan T) {
	for {
		select {
		case <-c:
		default:
			return
		}
	}
}
