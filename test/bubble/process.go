package bubble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"leasehold.dev/client"
	"leasehold.dev/test/virtual"
)

// driftBound is the default drift in client.Config. Each clock drifts by at most half of it, so any
// two clocks diverge by at most the bound.
const driftBound = 1e-3

// process is a client process: a machine, one Leasehold client, one etcd client, and the programs
// that use them until the process ends.
type process struct {
	w    *World
	on   *virtual.Machine
	user string
	c    *client.Client
	etcd *clientv3.Client
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

// Name implements history.Program.
func (p *process) Name() string { return p.on.Name }

// IsDead implements history.Program.
func (p *process) IsDead() bool { return p.on.IsDead() }

// begin starts a client process. The process logs in as user if access control is enabled.
func (w *World) begin(name, user string) (*process, error) {
	seed := w.draw().Uint64()
	on := w.net.Machine(name)
	p := &process{w: w, on: on, user: user, rng: rand.New(rand.NewPCG(seed, 3))}
	on.SetRate(1 + (p.float()-0.5)*driftBound)
	p.ctx, p.stop = context.WithCancel(context.Background())
	endpoints := w.endpoints(p)
	began := time.Now()
	user, password := w.login(user)
	var err error
	p.c, err = client.New(client.Config{
		Endpoints: endpoints, AnyMember: p.intn(3) == 0, Drift: driftBound,
		User: user, Password: password,
		Dial:   func(ctx context.Context, e string) (net.Conn, error) { return on.Dial(ctx, "", e) },
		Now:    func() time.Time { return began.Add(on.Clock()) },
		Logger: slog.New(w.logs(name)),
	})
	if err != nil {
		return nil, err
	}
	for {
		p.etcd, err = clientv3.New(clientv3.Config{
			Endpoints: endpoints, Logger: zap.NewNop(), DialKeepAliveTime: 3 * time.Second,
			DialKeepAliveTimeout: 2 * time.Second, Username: user, Password: password,
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(
				func(ctx context.Context, e string) (net.Conn, error) { return on.Dial(ctx, "", e) })},
		})
		switch {
		case err == nil:
			return p, nil
		case user == "":
			return nil, errors.Join(err, p.c.Close())
		}
		// client.New logs in immediately, but there may be no reachable member yet
		time.Sleep(time.Second)
	}
}

// run runs a program repeatedly until the process ends.
func (p *process) run(program func(*process) error) {
	p.wg.Go(func() {
		for p.ctx.Err() == nil {
			if err := program(p); err != nil {
				p.w.h.Count("errors")
				p.w.h.refuse(p, err)
			}
			p.sleep(10*time.Millisecond, p.w.pace)
		}
	})
}

// end ends the process, either with SIGKILL or cleanly.
func (p *process) end(killed bool) {
	if killed {
		p.on.Kill(false)
	}
	p.on.Resume()
	p.stop()
	// Only closing the client cancels the call that removes its lock from the queue.
	_ = p.etcd.Close()
	p.wg.Wait()
	_ = p.c.Close()
}

func (p *process) intn(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rng.IntN(n)
}

func (p *process) float() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rng.Float64()
}

// between returns a random duration between least and most.
func (p *process) between(least, most time.Duration) time.Duration {
	return least + time.Duration(p.float()*float64(most-least))
}

// sleep waits for a random time, or until the process ends.
func (p *process) sleep(least, most time.Duration) {
	p.wait(p.ctx, p.between(least, most))
}

func (p *process) wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// within returns a context with a random timeout for one call.
func (p *process) within(most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.ctx, p.between(most/10, most))
}

// unique returns a string that is unique within the run.
func (w *World) unique() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	return fmt.Sprint(w.last)
}
