package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// These are the resources for which clients contend in the mixed campaign, and the number of
// workers per client.
var contended = []string{"lock/1", "lock/2", "lock/3", "lead/1", "lead/2"}

const (
	mixedTTL     = 3000 // milliseconds
	mixedWorkers = 3
)

// mixed is a campaign in which clients of all languages contend for the same locks and elections.
type mixed struct {
	*run
	until   time.Time
	waiting sync.WaitGroup // tracks pending answers to wait_ended

	mu      sync.Mutex // guards the following fields and the clients' drivers
	holds   []*hold
	highest map[string]uint64 // the external store's highest token for each name
	writes  int
	refused int
	commits []commit
	failed  map[string]int   // failed requests by error code
	pauses  map[string][]gap // periods in which clients were stopped
	faults  map[string]int
}

// hold is a lock or lead as reported by a client. Times are in milliseconds on the machine's
// monotonic clock.
type hold struct {
	client, name string
	token        uint64
	from         float64 // when the client acquired it
	until        float64 // time until which the client claimed to be the only holder
	released     bool
	killed       bool    // the client was killed before it could report the end
	notified     float64 // when the client reported the loss, or 0
}

// commit is a successful transaction that was conditional on the lock or lead still being held.
type commit struct {
	*hold
	revision uint64
}

// gap is a period during which a client was stopped.
type gap struct{ from, to float64 }

// monotonic returns the time in milliseconds on the clock that all processes of the machine share.
func monotonic() float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return float64(t.Nano()) / 1e6
}

// runMixed runs the campaign with two clients of each language.
func runMixed(ctx context.Context, s *settings, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, s.mixed+2*patience)
	defer cancel()
	clusterDir, err := os.MkdirTemp(dir, "cluster-")
	if err != nil {
		return err
	}
	cl, err := startCluster(ctx, given{Members: 3, Own: true}, s.binary, clusterDir)
	if err != nil {
		return err
	}
	defer cl.stop()
	m := &mixed{
		run: &run{
			testCase: &testCase{Name: "mixed"}, ctx: ctx, cluster: cl, clients: map[string]*client{},
			vars: variables{}, later: map[string]<-chan *answer{},
		},
		until: time.Now().Add(s.mixed), highest: map[string]uint64{}, failed: map[string]int{},
		pauses: map[string][]gap{}, faults: map[string]int{},
	}
	for language, command := range s.drivers {
		for i := range 2 {
			name := fmt.Sprintf("%s%d", language, i)
			c := &client{command: command, proxies: map[*member]*proxy{}}
			m.clients[name] = c
			if err := m.start(name); err != nil {
				return err
			}
			defer func() { c.kill() }()
		}
	}
	m.play(s.seed)
	return m.verdict()
}

// start starts a client's process, or restarts it after it was killed.
func (m *mixed) start(name string) error {
	c := m.clients[name]
	d, err := startDriver(c.command)
	if err != nil {
		return err
	}
	m.mu.Lock()
	c.driver = d
	m.mu.Unlock()
	return m.connect(name, args{"call_ms": 10000})
}

// play runs the workers and injects faults until the time is up.
func (m *mixed) play(seed uint64) {
	var all sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(m.clients)) {
		for i := range mixedWorkers {
			seed++
			random := rand.New(rand.NewPCG(seed, 0))
			w := &worker{mixed: m, client: name, session: fmt.Sprintf("s%d", i), random: random}
			all.Go(w.work)
		}
	}
	all.Go(func() { m.injectFaults(rand.New(rand.NewPCG(seed, 1))) })
	all.Wait()
	m.waiting.Wait()
}

func (m *mixed) over() bool { return m.ctx.Err() != nil || time.Now().After(m.until) }

// send sends a request to a driver and returns a channel for the answer.
func (m *mixed) send(name, op string, a args) (<-chan *answer, error) {
	m.mu.Lock()
	d := m.clients[name].driver
	m.mu.Unlock()
	return d.send(op, a)
}

// ask sends a request to a driver and returns its answer.
func (m *mixed) ask(name, op string, a args) (args, error) {
	c, err := m.send(name, op, a)
	if err != nil {
		return nil, err
	}
	return m.wait(c)
}

func (m *mixed) wait(c <-chan *answer) (args, error) {
	select {
	case a := <-c:
		if a.Error != nil {
			m.mu.Lock()
			m.failed[a.Error.Code]++
			m.mu.Unlock()
			return nil, a.Error
		}
		got, _ := fields(a.OK)
		return got, nil
	case <-m.ctx.Done():
		return nil, m.ctx.Err()
	}
}

// number returns a numeric field of an answer.
func number[T float64 | uint64](a args, key string) (n T) {
	_, _ = fmt.Sscan(a.text(key), &n) // stays 0 if the field is missing
	return n
}

// worker uses successive sessions of a client.
type worker struct {
	*mixed
	client, session string
	random          *rand.Rand
	n               int
}

func (w *worker) work() {
	for !w.over() {
		a := args{"as": w.session, "ttl_ms": mixedTTL, "timeout_ms": 10000}
		if _, err := w.ask(w.client, "session", a); err != nil {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		for !w.over() && w.once() {
		}
		_, _ = w.ask(w.client, "release", args{"of": w.session}) // the session may be lost
	}
}

// once acquires a lock or lead, works with it, and releases it. It returns false if the session has
// ended.
func (w *worker) once() bool {
	w.n++
	name := contended[w.random.IntN(len(contended))]
	as := fmt.Sprintf("%s-%d", w.session, w.n)
	op := map[byte]string{'o': "lock", 'e': "campaign"}[name[1]]
	got, err := w.ask(w.client, op, args{"session": w.session, "name": "mixed/" + name, "as": as})
	if err != nil {
		return false
	}
	h := &hold{
		client: w.client, name: name,
		token: number[uint64](got, "token"), from: number[float64](got, "at"),
	}
	w.mu.Lock()
	w.holds = append(w.holds, h)
	w.mu.Unlock()
	c, err := w.send(w.client, "wait_ended", args{"of": as})
	if err != nil {
		return false
	}
	w.waiting.Go(func() { w.await(h, c) })
	for range 1 + w.random.IntN(8) {
		sent := monotonic()
		got, err := w.ask(w.client, "check", args{"of": as})
		if err != nil {
			time.Sleep(time.Duration(w.random.IntN(2000)) * time.Millisecond)
			w.write(h) // a late write, which the store rejects if a later holder has written
			return false
		}
		// The client read the validity after the check was sent, so it claims to hold the lock at
		// least this long.
		w.claim(h, sent+number[float64](got, "valid_ms"))
		time.Sleep(time.Duration(w.random.IntN(150)) * time.Millisecond)
		w.write(h)
		put := args{"put": args{"key": "mixed/data/" + name, "value": w.client}}
		got, err = w.ask(w.client, "txn", args{"if": []any{args{"held": as}}, "then": []any{put}})
		if err == nil && got.text("succeeded") == "true" {
			w.mu.Lock()
			w.commits = append(w.commits, commit{h, number[uint64](got, "revision")})
			w.mu.Unlock()
		}
	}
	sent := monotonic()
	w.mu.Lock()
	h.released, h.until = true, min(h.until, sent) // the client claims nothing after this
	w.mu.Unlock()
	_, err = w.ask(w.client, "release", args{"of": as})
	return err == nil
}

func (m *mixed) claim(h *hold, until float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.until = max(h.until, until)
}

// await records when a client reports the end of a hold.
func (m *mixed) await(h *hold, c <-chan *answer) {
	got, err := m.wait(c)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		h.notified = number[float64](got, "at")
	}
	h.killed = errors.As(err, new(*failure))
}

// write writes to a store that rejects tokens smaller than the largest one it has seen.
func (m *mixed) write(h *hold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.token < m.highest[h.name] {
		m.refused++
		return
	}
	m.highest[h.name] = h.token
	m.writes++
}

// injectFaults injects a series of faults and ends each before the next.
func (m *mixed) injectFaults(random *rand.Rand) {
	names := slices.Sorted(maps.Keys(m.clients))
	for !m.over() {
		time.Sleep(time.Duration(1000+random.IntN(4000)) * time.Millisecond)
		client := names[random.IntN(len(names))]
		long := time.Duration(500+random.IntN(5000)) * time.Millisecond
		kinds := []string{
			"kill member", "stop member", "kill client", "stop client", "cut", "break", "hold", "delay",
		}
		kind := kinds[random.IntN(len(kinds))]
		m.mu.Lock()
		m.faults[kind]++
		m.mu.Unlock()
		victim := fmt.Sprint(random.IntN(3))
		switch kind {
		case "kill member":
			m.pair(long, args{"fault": "kill", "member": victim}, args{"fault": "start", "member": victim})
		case "stop member":
			m.pair(long, args{"fault": "stop", "member": victim}, args{"fault": "cont", "member": victim})
		case "kill client":
			m.clients[client].kill()
			if err := m.start(client); err != nil {
				fmt.Fprintln(os.Stderr, "start", client, err)
			}
		case "stop client":
			from := monotonic()
			m.pair(long, args{"fault": "stop", "client": client}, args{"fault": "cont", "client": client})
			m.mu.Lock()
			m.pauses[client] = append(m.pauses[client], gap{from, monotonic()})
			m.mu.Unlock()
		default:
			ways := []string{"", "up", "down"}
			m.pair(long, args{
				"fault": kind, "client": client, "ms": 20 + random.IntN(300), "way": ways[random.IntN(3)],
			}, args{"fault": "heal"})
		}
	}
	for _, c := range m.cluster.members {
		_ = c.Signal(syscall.SIGCONT)
	}
}

// pair injects a fault for a given time.
func (m *mixed) pair(long time.Duration, begin, end args) {
	err := m.fault(begin)
	time.Sleep(long)
	if err := errors.Join(err, m.fault(end)); err != nil {
		fmt.Fprintln(os.Stderr, "fault:", err)
	}
}

// slack is the maximum delay of a client's timer on a busy machine, in milliseconds.
const slack = 1000

// verdict prints the counts and returns an error if a promise was broken.
func (m *mixed) verdict() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var overlaps, lost, killed, late int
	by := map[string][]*hold{}
	counts := map[string]int{}
	for _, h := range m.holds {
		by[h.name] = append(by[h.name], h)
		counts[h.client]++
		switch {
		case h.released:
		case h.killed:
			killed++
		case h.notified == 0:
			lost++
			late++
			fmt.Printf("NOT REPORTED: %+v\n", *h)
		default:
			lost++
		}
	}
	for name, list := range by {
		slices.SortFunc(list, func(a, b *hold) int { return cmp.Compare(a.token, b.token) })
		for i := 1; i < len(list); i++ {
			a, b := list[i-1], list[i]
			if a.token == b.token || a.until > b.from {
				overlaps++
				fmt.Printf("OVERLAP of %s: %+v and %+v\n", name, *a, *b)
			}
			if !a.released && a.notified > m.due(a.client, b.from) {
				late++
				fmt.Printf("REPORTED LATE: loss of %s, by %.0f ms: %+v and %+v\n", name, a.notified-b.from, *a, *b)
			}
		}
	}
	stale := m.stale()
	fmt.Printf("holds: %d %v, lost: %d, killed: %d\n", len(m.holds), counts, lost, killed)
	fmt.Printf("external writes: %d, rejected by token: %d; transactions: %d\n",
		m.writes, m.refused, len(m.commits))
	fmt.Printf("faults: %v\nerrors: %v\n", m.faults, m.failed)
	fmt.Printf("overlaps: %d, losses reported late: %d, stale transactions: %d\n",
		overlaps, late, stale)
	if overlaps+late+stale > 0 || len(m.holds) == 0 {
		return errors.New("the mixed campaign failed")
	}
	return nil
}

// due returns the time by which a client must report a loss that happened at a given time, allowing
// for periods in which the client was stopped.
func (m *mixed) due(name string, at float64) float64 {
	for _, g := range m.pauses[name] {
		if g.from < at+slack {
			at = max(at, g.to)
		}
	}
	return at + slack
}

// stale counts transactions that succeeded after a transaction by a later holder.
func (m *mixed) stale() (n int) {
	slices.SortFunc(m.commits, func(a, b commit) int { return cmp.Compare(a.revision, b.revision) })
	last := map[string]commit{}
	for _, c := range m.commits {
		if before, ok := last[c.name]; ok && c.token < before.token {
			n++
			fmt.Printf("STALE: %+v at revision %d after %+v at revision %d\n",
				*c.hold, c.revision, *before.hold, before.revision)
			continue
		}
		last[c.name] = c
	}
	return n
}
