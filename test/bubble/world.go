package bubble

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"leasehold.dev/test/crashfs"
	"leasehold.dev/test/virtual"
)

// Options configures a run.
type Options struct {
	Seed uint64
	// Minutes is the duration of fault injection, in minutes of virtual time.
	Minutes int
	// Log prints the faults and the logs of members and clients.
	Log bool
}

// World is one run: its members, its clients, and the network between them.
type World struct {
	opts    Options
	h       *record
	net     *virtual.Network
	members []*member
	relays  []*relayer
	users   bool          // access control is enabled
	syncs   time.Duration // maximum sync duration without faults
	calm    time.Duration // mean time between faults
	pace    time.Duration // maximum pause of a program between two actions

	heal  chan struct{}  // closed when the faults end
	mends sync.WaitGroup // tracks faults that have not been repaired

	mu      sync.Mutex // guards the following fields
	rng     *rand.Rand
	others  map[string]*virtual.Machine // machines for addresses without a process
	clients []*process
	roles   []func(*process)
	lead    string // the most recent leader
	last    int
	ended   sync.WaitGroup
}

func newWorld(o Options) *World {
	rng := rand.New(rand.NewPCG(o.Seed, 0))
	w := &World{
		opts: o, h: newRecord(), rng: rng,
		others: make(map[string]*virtual.Machine), heal: make(chan struct{}),
		users: hasUsers(o.Seed),
		syncs: time.Duration(rng.Int64N(int64(5 * time.Millisecond))),
		calm:  time.Second + time.Duration(rng.Int64N(int64(20*time.Second))),
		pace:  300*time.Millisecond + time.Duration(rng.Int64N(int64(5*time.Second))),
	}
	usual := virtual.Conditions{Delay: 200 * time.Microsecond, Jitter: 300 * time.Microsecond}
	w.net = virtual.NewNetwork(usual, w.find, rand.New(rand.NewPCG(o.Seed, 2)))
	n := []int{1, 3, 3, 3, 3, 5}[rng.IntN(6)]
	for i := range n {
		w.members = append(w.members, &member{
			w: w, name: fmt.Sprint("m", i+1), mem: crashfs.New(),
		})
	}
	w.addRelays(rand.New(rand.NewPCG(o.Seed, 5)))
	return w
}

// draw returns a new random source.
func (w *World) draw() *rand.Rand {
	w.mu.Lock()
	defer w.mu.Unlock()
	return rand.New(rand.NewPCG(w.rng.Uint64(), 4))
}

// find returns the machine that currently has an address.
func (w *World) find(at string) *virtual.Machine {
	host, _, _ := strings.Cut(at, ":")
	for _, m := range w.members {
		if on := m.place(); ip(m.name) == host && on != nil {
			return on
		}
	}
	for _, r := range w.relays {
		if on := r.place(); ip(r.name) == host && on != nil {
			return on
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.others[host] == nil {
		w.others[host] = w.net.Machine(host)
	}
	return w.others[host]
}

// machines returns all running machines.
func (w *World) machines() []*virtual.Machine {
	return slices.Concat(w.memberMachines(), w.relayMachines(), w.clientMachines())
}

func (w *World) memberMachines() (all []*virtual.Machine) {
	for _, m := range w.members {
		if on := m.machine(); on != nil {
			all = append(all, on)
		}
	}
	return all
}

func (w *World) relayMachines() (all []*virtual.Machine) {
	for _, r := range w.relays {
		if on := r.machine(); on != nil {
			all = append(all, on)
		}
	}
	return all
}

func (w *World) clientMachines() (all []*virtual.Machine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.clients {
		all = append(all, p.on)
	}
	return all
}

// leader returns the last known leader.
func (w *World) leader() *member {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.members {
		if m.name == w.lead {
			return m
		}
	}
	return w.members[0]
}

// someone returns a random client process.
func (w *World) someone(rng *rand.Rand) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clients[rng.IntN(len(w.clients))]
}

// join starts a client process with the role at place. The process is added to the list of clients
// or replaces the client at place.
func (w *World) join(place int) error {
	p, err := w.begin(fmt.Sprint("c", place+1), workerUser)
	if err != nil {
		return err
	}
	w.mu.Lock()
	if place == len(w.clients) {
		w.clients = append(w.clients, p)
	}
	w.clients[place] = p
	role := w.roles[place]
	w.mu.Unlock()
	role(p)
	return nil
}

// replace ends a client process and starts another in its place, unless the process has already
// been replaced.
func (w *World) replace(p *process, killed bool) {
	w.mu.Lock()
	place := slices.Index(w.clients, p)
	w.mu.Unlock()
	if place < 0 || p.ctx.Err() != nil {
		return
	}
	p.end(killed)
	if err := w.join(place); err != nil {
		w.h.Violate("start", "%v", err)
	}
}

// combine combines several programs into one.
func combine(list ...func(*process) error) func(*process) {
	return func(p *process) {
		for _, program := range list {
			p.run(program)
		}
	}
}

// run performs the run from start to finish.
func (w *World) run() error {
	for _, m := range w.members {
		if err := m.start(); err != nil {
			return err
		}
	}
	if err := w.addUsers(); err != nil {
		return err
	}
	for _, r := range w.relays {
		if err := r.start(); err != nil {
			return err
		}
	}
	w.roles = []func(*process){
		combine(storeKeys, keep, locks, push, watch, watch, observe, lead, share),
		combine(storeEtcd, storeKeys, cached, work, leave, keep, borrow, share),
		combine(storeKeys, locks, lockEtcd, keepEtcd, push, work, cached, lead, borrow),
		combine(storeEtcd, lockEtcd, keep, watch, watch, locks, work, lead, borrow, share),
	}
	for i := range w.roles {
		if err := w.join(i); err != nil {
			return err
		}
	}
	auditor, err := w.begin(auditorName, rootUser)
	if err != nil {
		return err
	}
	auditor.run(observe)
	auditor.run(watch)
	if w.users {
		auditor.run(tenants)
		auditor.run(tenants)
	}
	time.Sleep(10 * time.Second)
	f := &faults{w: w, rng: w.draw()}
	f.run(time.Duration(w.opts.Minutes) * time.Minute)
	close(w.heal)
	w.mends.Wait()
	w.say("all faults are over")
	time.Sleep(time.Minute)
	for _, p := range w.clients {
		p.end(false)
	}
	w.audit(auditor)
	auditor.end(false)
	for _, r := range w.relays {
		r.close()
	}
	for _, m := range w.members {
		m.close()
	}
	w.ended.Wait()
	w.h.End()
	time.Sleep(time.Minute) // some goroutines perform one more check before they end
	return nil
}

// say logs an event of the run if Options.Log is set.
func (w *World) say(format string, args ...any) {
	if w.opts.Log {
		fmt.Fprintf(os.Stderr, "%v ======== %s\n", w.h.Now(), fmt.Sprintf(format, args...))
	}
}

// logs returns the log handler of a process.
func (w *World) logs(name string) slog.Handler {
	h := slog.Handler(slog.DiscardHandler)
	if w.opts.Log {
		h = slog.NewTextHandler(os.Stderr, nil).WithAttrs([]slog.Attr{slog.String("at", name)})
	}
	return &leaderHandler{Handler: h, w: w, name: name}
}

// leaderHandler is a log handler that records which member has become the leader.
type leaderHandler struct {
	slog.Handler
	w    *World
	name string
}

// Enabled implements slog.Handler.
func (*leaderHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// Handle implements slog.Handler.
func (e *leaderHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "a member leads" {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "this-member" && a.Value.Bool() {
				e.w.mu.Lock()
				e.w.lead = e.name
				e.w.mu.Unlock()
				e.w.h.Count("elections")
			}
			return true
		})
	}
	return e.Handler.Handle(ctx, r)
}
