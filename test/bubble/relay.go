package bubble

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"leasehold.dev/internal/relay"
	"leasehold.dev/test/virtual"
)

// relayer is a relay. Crashes and restarts give it several successive processes. It has no disk,
// and its clock is irrelevant.
type relayer struct {
	w    *World
	name string

	mu   sync.Mutex       // guards the following fields
	on   *virtual.Machine // nil while it is down
	last *virtual.Machine
	off  context.CancelFunc
	end  chan struct{} // closed when Run returns in the current process
}

// addRelays adds at most two relays, depending on the seed.
func (w *World) addRelays(rng *rand.Rand) {
	for i := range rng.IntN(3) {
		w.relays = append(w.relays, &relayer{w: w, name: fmt.Sprint("r", i+1)})
	}
}

// auditorName is the name of the client that connects directly to each member.
const auditorName = "auditor"

// endpoints chooses a client's endpoints: members, relays, or both.
func (w *World) endpoints(p *process) (list []string) {
	way := p.intn(4)
	if len(w.relays) == 0 || way < 2 || p.on.Name == auditorName {
		for _, m := range w.members {
			list = append(list, clientAddr(m.name))
		}
	}
	if way > 0 && p.on.Name != auditorName {
		if len(w.relays) > 0 {
			w.h.Count("clients of relays")
		}
		for _, r := range w.relays {
			list = append(list, clientAddr(r.name))
		}
	}
	return list
}

// start starts the relay.
func (r *relayer) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil {
		r.last.Replaced()
	}
	on := r.w.net.Machine(r.name)
	cfg := relay.Config{
		Listen: httpURL(clientAddr(r.name)), Host: on.Host(nil), Logger: slog.New(r.w.logs(r.name)),
	}
	cfg.User, cfg.Password = r.w.login(relayUser)
	for _, m := range r.w.members {
		cfg.Endpoints = append(cfg.Endpoints, clientAddr(m.name))
	}
	s, err := relay.New(cfg)
	if err != nil {
		return fmt.Errorf("start of %s: %w", r.name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan struct{})
	r.on, r.last, r.off, r.end = on, on, cancel, end
	r.w.ended.Go(func() {
		defer close(end)
		if err := s.Run(ctx); err != nil && !on.IsDead() {
			r.w.h.Violate("stop", "%s: %v", r.name, err)
		}
	})
	return nil
}

// crash kills the process.
func (r *relayer) crash(silent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on.Kill(silent)
	r.off()
	r.on = nil
}

// restart starts the relay after a crash.
func (r *relayer) restart() {
	if err := r.start(); err != nil {
		r.w.h.Violate("start", "%v", err)
	}
}

// close shuts the relay down cleanly.
func (r *relayer) close() {
	if on := r.machine(); on != nil {
		on.Resume()
	}
	r.off()
	<-r.end
}

// machine returns the relay's machine, or nil while the relay is down.
func (r *relayer) machine() *virtual.Machine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.on
}

// place returns the machine on which the relay runs or last ran.
func (r *relayer) place() *virtual.Machine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// ofRelays returns the faults that affect relays.
func (f *faults) ofRelays() []kind {
	return []kind{
		{"crash of a relay", f.crashRelay},
		{"pause of a relay", func() { f.pause(f.relay().machine()) }},
		{"isolated relay", func() { f.isolate(f.relay().machine()) }},
		{"relay cut from clients or members", f.partRelay},
		{"relay that gets answers late, then none", func() { f.eclipse(f.relay().machine()) }},
	}
}

func (f *faults) relay() *relayer { return f.w.relays[f.rng.IntN(len(f.w.relays))] }

// crashRelay crashes a relay and restarts it later.
func (f *faults) crashRelay() {
	r := f.relay()
	if r.machine() == nil {
		return
	}
	r.crash(f.rng.IntN(2) == 0)
	f.later(f.between(time.Millisecond, 10*time.Second), r.restart)
}

// partRelay cuts a relay off either from all members or from all clients.
func (f *faults) partRelay() {
	on := f.relay().machine()
	if on == nil {
		return
	}
	from := f.w.clientMachines()
	if f.rng.IntN(2) == 0 {
		from = f.w.memberMachines()
	}
	f.partFrom([]*virtual.Machine{on}, from, true, true)
}
