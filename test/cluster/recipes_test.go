package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	native "leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/nodes"
	"leasehold.dev/client/queue"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// A stage is where agents act: what TestRecipes has beside the cluster.
type stage struct {
	*cluster
	agents []*runner
	notes  []*noteReader // their files
	stop   chan struct{}
	all    sync.WaitGroup
	watch  *native.Client // of the test
	book   *noteBook      // of the test
}

// newStage starts so many agents.
func newStage(c *cluster, n int) *stage {
	c.t.Helper()
	dir := c.t.TempDir()
	s := &stage{cluster: c, stop: make(chan struct{})}
	told := orders{}
	for _, m := range c.members {
		told.Endpoints = append(told.Endpoints, m.url)
	}
	for i := range n {
		told.Others = append(told.Others, fmt.Sprintf("a%d", i+1))
	}
	for _, told.Name = range told.Others {
		told.Notes = filepath.Join(dir, told.Name+".notes")
		s.notes = append(s.notes, &noteReader{path: told.Notes})
		text, err := json.Marshal(told)
		if err != nil {
			c.t.Fatal(err)
		}
		r := &runner{
			log: filepath.Join(dir, told.Name+".log"),
			command: func() *exec.Cmd {
				cmd := exec.Command(os.Args[0])
				if c.links != nil {
					cmd = exec.Command("ip", "netns", "exec", c.links.hub, os.Args[0])
				}
				cmd.Env = append(os.Environ(), agentEnv+"="+string(text), "GORACE=halt_on_error=1")
				return cmd
			},
		}
		s.agents = append(s.agents, r)
		s.all.Go(func() { r.keep(c.t, s.stop) })
	}
	s.observe(dir)
	harness.Eventually(c.t, "agents begin", func() error {
		for _, r := range s.notes {
			if _, err := os.Stat(r.path); err != nil {
				return err
			}
		}
		return nil
	})
	return s
}

// observe follows the election and the group from the test's process, which nobody stops.
func (s *stage) observe(dir string) {
	s.t.Helper()
	var err error
	if s.book, err = openNotes(filepath.Join(dir, "test.notes"), "test"); err != nil {
		s.t.Fatal(err)
	}
	s.notes = append(s.notes, &noteReader{path: filepath.Join(dir, "test.notes")})
	s.watch = nativeClient(s.t, s.members)
	for _, work := range []func(*hand) error{observeElection, watchGroup} {
		a := &agent{noteBook: s.book, ctx: s.t.Context()}
		a.calm.Store(true)
		a.clients[0] = s.watch
		go func() { _ = work(&hand{agent: a}) }() // it ends with the test
	}
}

// nativeClient returns a client of ours.
func nativeClient(t *testing.T, members []*member) *native.Client {
	t.Helper()
	var c native.Config
	for _, m := range members {
		c.Endpoints = append(c.Endpoints, m.url)
		if m.dial != nil {
			c.Dial = func(ctx context.Context, endpoint string) (net.Conn, error) {
				return m.dial(ctx, strings.TrimPrefix(endpoint, "http://"))
			}
		}
	}
	out, err := native.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	return out
}

// signal sends a signal to all agents.
func (s *stage) signal(sig syscall.Signal) {
	for _, r := range s.agents {
		r.signal(sig)
	}
}

// harass kills and stops agents until the context ends.
func (s *stage) harass(ctx context.Context, rng *rand.Rand) {
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		pause(between(rng, 100, 1200))
		some := []*runner{s.agents[rng.IntN(len(s.agents))]}
		if rng.IntN(6) == 0 {
			some = s.agents[rng.IntN(len(s.agents)):]
		}
		sig, long := syscall.SIGSTOP, between(rng, 50, 2500)
		if rng.IntN(3) == 0 {
			sig, long = syscall.SIGKILL, 0
		}
		for _, r := range some {
			r.signal(sig)
		}
		pause(long)
		for _, r := range some {
			r.signal(syscall.SIGCONT)
		}
	}
}

// order has the nodes switched again and again.
func (s *stage) order(ctx context.Context, rng *rand.Rand) {
	nodes := nodes.New(s.watch, usedPrefix+theNodes)
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, between(rng, 500, 3000))
		// It may be in vain: the node may be down, or die before.
		_ = nodes.Switch(once, fmt.Sprintf("a%d", 1+rng.IntN(len(s.agents))))
		<-once.Done()
		cancel()
	}
}

// read returns the notes of all.
func (s *stage) read() (list []note) {
	s.t.Helper()
	for _, r := range s.notes {
		notes, err := r.all()
		if err != nil {
			s.t.Fatal(err)
		}
		list = append(list, notes...)
	}
	return list
}

// things are what each of agents holds, again and again.
var things = []string{
	theMutex, theRWMutex, theSemaphore, theElection, thePool, theGroup, theNodes, thePrimary,
	theQueue,
}

// goesOn waits until all there is is held by somebody new.
func (s *stage) goesOn() {
	s.t.Helper()
	since := machineTime()
	harness.Eventually(s.t, "somebody new has everything", func() error {
		missing := slices.Clone(things)
		for _, n := range s.read() {
			if n.Verb == noteHold && n.At > since {
				missing = slices.DeleteFunc(missing, func(m string) bool {
					return n.What == m || strings.HasPrefix(n.What, m+"/") && n.What != thePrimary
				})
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("nobody has %v", missing)
		}
		return nil
	})
}

// windsDown waits until the queue is empty, the agents have given back what they had, and nothing
// is left of it, not even a lease, although all still run.
func (s *stage) windsDown() {
	s.t.Helper()
	items := queue.New(s.watch, usedPrefix+theQueue, queue.Config{MaxTries: maxTries})
	since := machineTime()
	harness.Eventually(s.t, "the queue is empty", func() error {
		c, err := items.Stats(s.t.Context())
		if err == nil && c != (queue.Stats{Dead: c.Dead}) {
			err = fmt.Errorf("there are %+v; of workers: %v", c, s.lately(since))
		}
		return err
	})
	s.signal(syscall.SIGTERM)
	harness.Eventually(s.t, "agents are idle", func() error {
		idle := 0
		for _, n := range s.read() {
			if n.Verb == noteIdle {
				idle++
			}
		}
		if idle < len(s.agents) {
			return fmt.Errorf("%d of %d are", idle, len(s.agents))
		}
		return nil
	})
	harness.Eventually(s.t, "no lease is left", func() error {
		for l, err := range s.watch.List(s.t.Context(), leases.Filter{Keys: true}) {
			if err != nil {
				return err
			}
			return fmt.Errorf("lease %016x is left: %+v", l.ID, l)
		}
		return nil
	})
}

// lately counts what workers of the queue noted since an instant.
func (s *stage) lately(since time.Duration) map[string]int {
	count := make(map[string]int)
	for _, n := range s.read() {
		switch {
		case n.At < since:
		case n.Verb == noteClaim:
			count["claims"]++
		case n.Verb == noteError && (n.What == "claim" || n.What == "work"):
			count[numbers.ReplaceAllString(n.Text, "#")]++
		}
	}
	return count
}

// left says what is in the store that should not be.
func left(j journal) error {
	var wrong []error
	for key := range j.fold(1 << 62) {
		ok := !strings.HasPrefix(key, usedPrefix) || key == usedPrefix+theElection+"~preferred" ||
			key == usedPrefix+thePool+"/ids"
		for _, prefix := range []string{
			thePool + "/was/", theNodes + "/known/", theQueue + "/dead/",
		} {
			ok = ok || strings.HasPrefix(key, usedPrefix+prefix)
		}
		if !ok {
			wrong = append(wrong, fmt.Errorf("%s is left", key))
		}
	}
	return errors.Join(wrong...)
}

// TestRecipes has agents use all that the packages above the client have while agents and members
// are killed and stopped. No two hold what one may, by their own account, and tokens rise (L4, L5);
// observers see who has it, and watchers are told of all, once and in order; items are done, or
// dead after all their tries, and by no worker that had lost its claim; and in the end everything
// goes on, and nothing is left.
func TestRecipes(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	if *foreignFlag {
		t.Skip("about what leasehold promises")
	}
	recipes(t, newCluster(t, 3), processFaults)
}

// TestRecipesApart does so while links are cut.
func TestRecipesApart(t *testing.T) {
	tier.Campaign(t)
	if *foreignFlag {
		t.Skip("about what leasehold promises")
	}
	if *roundsFlag < 6 && !*longFlag {
		t.Skip("TestRecipes says most of it: -rounds 6")
	}
	recipes(t, newNetCluster(t, 3), slices.Concat(linkFaults, processFaults))
}

func recipes(t *testing.T, c *cluster, faults []fault) {
	t.Helper()
	rng := choices(t)
	first := c.revision()
	stopWatches := watchAll(t, c, first+1)
	n, rounds := 4, *roundsFlag
	if *longFlag {
		n, rounds = 6, 20**roundsFlag
	}
	s := newStage(c, n)
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	for _, f := range []func(context.Context, *rand.Rand){s.harass, s.order} {
		rng := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		others.Go(func() { f(ctx, rng) })
	}
	order := rng.Perm(len(faults))
	for i := range rounds {
		f := faults[order[i%len(order)]]
		began := now()
		f.run(c, rng)
		c.serves()
		t.Logf("round %d: %s; all serve after %v", i+1, f.name, (now() - began).Round(time.Millisecond))
		c.wait(500 * time.Millisecond)
	}
	cancel()
	others.Wait()
	healed := now()
	s.goesOn()
	s.signal(syscall.SIGUSR1)
	s.windsDown()
	t.Logf("nothing is left after %v", (now() - healed).Round(time.Millisecond))
	last := c.revision()
	logs := stopWatches(last)
	s.catchUp(last)
	close(s.stop)
	s.all.Wait()
	j, err := agree(logs, first+1)
	if err != nil {
		t.Error(err)
	}
	s.judge(j)
	sameHash(t, c)
}

// catchUp waits until the watches of the test know that nobody leads, and nobody is there.
func (s *stage) catchUp(last int64) {
	s.t.Helper()
	harness.Eventually(s.t, "watches of ours catch up", func() error {
		var leader, member int64
		for _, n := range s.read() {
			switch {
			case n.Who == "test" && n.Verb == noteLeader:
				leader = n.Mark
			case n.Who == "test" && n.Verb == noteMember && n.Mode == "joined":
				member++
			case n.Who == "test" && n.Verb == noteMember && n.Mode != "updated":
				member--
			}
		}
		if leader != 0 || member != 0 {
			return fmt.Errorf("of revision %d: %x leads, %d are members", last, leader, member)
		}
		return nil
	})
}

// judge judges all that the agents saw.
func (s *stage) judge(j journal) {
	s.t.Helper()
	notes := s.read()
	for _, n := range notes {
		if n.Verb == noteWrong {
			s.t.Errorf("%s, %s: %s", n.Who, n.What, n.Text)
		}
	}
	for _, r := range s.agents {
		text, err := os.ReadFile(r.log)
		if err != nil {
			s.t.Fatal(err)
		}
		if i := slices.IndexFunc([]string{"DATA RACE", "panic:", "fatal error:"}, func(bad string) bool {
			return strings.Contains(string(text), bad)
		}); i >= 0 {
			s.t.Errorf("an agent ended: %s\n%s", r.log, process.Tail(r.log))
		}
	}
	held := stays(notes)
	for _, x := range []struct {
		what string
		err  error
	}{
		{"what is held by one (L4)", eachThing(held, []string{
			theMutex, theElection, thePool + "/", thePrimary, theQueue + "/", theGroup + "/",
		}, func(list []*stay) error { return crowded(list, 1) })},
		{"nodes", eachThing(held, []string{theNodes + "/a"}, func(list []*stay) error {
			return crowded(list, 1)
		})},
		{"tokens (L5)", eachThing(held, []string{
			theMutex, theElection, thePool + "/", thePrimary, theQueue + "/",
		}, unfenced)},
		{"the semaphore", eachThing(held, []string{theSemaphore}, func(list []*stay) error {
			return crowded(list, permits)
		})},
		{"readers and writers", eachThing(held, []string{theRWMutex}, func(list []*stay) error {
			return beside(list, modeAlone)
		})},
		{"the quarantine", eachThing(held, []string{thePool + "/"}, func(list []*stay) error {
			return hasty(list, quarantine)
		})},
		{"who looks", unseen(notes, held)},
		{"what holders wrote", sunk(j)},
		{"observers of the election", overlooked(notes, j)},
		{"watches of the group", misled(notes, j)},
		{"the end", left(j)},
	} {
		if x.err != nil {
			s.t.Errorf("%s: %v", x.what, x.err)
		}
	}
	l, err := misqueued(notes, j)
	if err != nil {
		s.t.Errorf("the queue: %v", err)
	}
	s.tell(notes, held, l)
}

// eachThing judges all that is of each thing below each prefix.
func eachThing(held []*stay, prefixes []string, judge func([]*stay) error) error {
	var wrong []error
	for _, p := range prefixes {
		for _, list := range byThing(held, p) {
			wrong = append(wrong, judge(list))
		}
	}
	return errors.Join(wrong...)
}

var numbers = regexp.MustCompile(`[0-9a-f]*[0-9][0-9a-z.-]*`)

// tell tells how much there was to judge, and what failed as it may.
func (s *stage) tell(notes []note, held []*stay, l *ledger) {
	s.t.Helper()
	count := make(map[string]int)
	for _, h := range held {
		what, _, _ := strings.Cut(h.what, "/")
		if h.what == thePrimary {
			what = h.what
		}
		count[what]++
	}
	verbs, failed := make(map[string]int), make(map[string]int)
	for _, n := range notes {
		verbs[n.Verb]++
		if n.Verb == noteError {
			failed[n.What+": "+numbers.ReplaceAllString(n.Text, "#")]++
		}
	}
	s.t.Logf("held: %v", count)
	s.t.Logf("notes: %v; %d items done, %d dead, %d pushed again", verbs, len(l.done), len(l.dead),
		l.again)
	if s.t.Failed() {
		return // what is wrong is not to be hidden
	}
	for _, text := range slices.Sorted(maps.Keys(failed)) {
		s.t.Logf("%d times %s", failed[text], text)
	}
}
