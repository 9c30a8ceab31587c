package serve

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"leasehold.dev/internal/subprocess"
)

// demo runs programs that use the cluster the way real programs do. Each one is a separate process
// running this binary, so that it can crash.
type demo struct {
	exe, endpoints string
	log            *slog.Logger
}

// actor is a program of the demo. It is restarted whenever it ends.
type actor struct {
	args []string
	// life is the mean time for which the program runs, and rest is the mean pause before a
	// restart. If life is 0, the program ends without being stopped. One in three is killed without
	// a chance to clean up.
	life, rest time.Duration
}

// sleepForever is a command that runs practically forever. It is for programs that hold something
// for as long as they run.
var sleepForever = []string{"--", "sleep", "3600"}

func actors() (all []actor) {
	add := func(life, rest time.Duration, args ...string) {
		all = append(all, actor{args, life, rest})
	}
	for i := range 3 {
		n := strconv.Itoa(i + 1)
		add(40*time.Second, 3*time.Second, append([]string{
			"run", "--elect", "demo/primary", "--ttl", "5s", "--id", "node-" + n, "--value", "node-" + n,
		}, sleepForever...)...)
		add(time.Minute, 5*time.Second, append([]string{
			"group", "register", "demo/workers", "worker-" + n, "--ttl", "5s", "--wait",
			"--metadata", "10.0.0." + n + ":80",
		}, sleepForever...)...)
		add(time.Minute, 2*time.Second, append([]string{
			"pool", "acquire", "demo/ports", "--ttl", "5s", "--owner", "worker-" + n,
		}, sleepForever...)...)
		add(0, time.Second, "run", "--lock", "demo/report", "--ttl", "5s", "--", "sleep", "2")
	}
	for _, name := range []string{"worker-1", "worker-2"} {
		add(30*time.Second, time.Second, "queue", "work", "demo/jobs", "--ttl", "5s", "--worker", name,
			"--", "sleep", "3")
	}
	add(0, 2*time.Second, "queue", "push", "demo/jobs", "a job")
	return all
}

// run runs the programs until the context ends.
func (d *demo) run(ctx context.Context) {
	d.once(ctx, "pool", "create", "demo/ports", "--first", "8000", "--last", "8009")
	var all sync.WaitGroup
	defer all.Wait()
	for _, a := range actors() {
		all.Go(func() { d.play(ctx, a) })
	}
}

// command returns a command of this binary that uses the cluster.
func (d *demo) command(ctx context.Context, args []string) *exec.Cmd {
	c := exec.CommandContext(ctx, d.exe, args...)
	c.SysProcAttr = subprocess.EndWithUs()
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LEASEHOLD_") { // for example, a login or a different cluster
			c.Env = append(c.Env, v)
		}
	}
	c.Env = append(c.Env, "LEASEHOLD_ENDPOINTS="+d.endpoints)
	return c
}

// once runs a command, and logs an error if it fails.
func (d *demo) once(ctx context.Context, args ...string) {
	out, err := d.command(ctx, args).CombinedOutput()
	if err != nil && ctx.Err() == nil {
		d.log.Warn("a demo program failed", "program", strings.Join(args, " "),
			"error", err, "output", string(out))
	}
}

// play restarts a program until the context ends.
func (d *demo) play(ctx context.Context, a actor) {
	runtime.LockOSThread() // the kernel kills the programs when the thread that started them ends
	defer runtime.UnlockOSThread()
	for {
		select {
		case <-time.After(jitter(a.rest)):
		case <-ctx.Done():
			return
		}
		if a.life == 0 {
			d.once(ctx, a.args...)
		} else {
			d.live(ctx, a)
		}
	}
}

// live runs a program for about as long as life specifies.
func (d *demo) live(ctx context.Context, a actor) {
	life, end := context.WithTimeout(ctx, jitter(a.life))
	defer end()
	c := d.command(life, a.args)
	if rand.IntN(3) > 0 {
		c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
		c.WaitDelay = 2 * time.Second
	}
	err := c.Run()
	if life.Err() == nil && err != nil {
		d.log.Warn("a demo program ended", "program", strings.Join(a.args, " "),
			"error", err)
	}
}

// jitter returns a random time between d/2 and 3d/2.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d+1) }
