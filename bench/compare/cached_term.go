package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/load"
)

// stations is how many clients read and write in measurements of the term, each with a
// connection of its own.
const stations = 200

// A sharing is a load as Gray and Cheriton model it.
type sharing struct {
	reads, writes float64 // R and W: of one client, a second
	caches        int     // S: how many clients share a key
	terms         []time.Duration
}

// busy is a load for which caches are made, and systemV what the paper gives for the V
// system, with S = 1.
var (
	busy = sharing{
		reads: 10, writes: 0.04, caches: 10,
		terms: secondsOf(0.5, 1, 2, 3, 5, 10, 20, 30),
	}
	systemV = sharing{reads: 0.864, writes: 0.04, caches: 1, terms: secondsOf(1, 3, 10, 30)}
)

func secondsOf(list ...float64) (out []time.Duration) {
	for _, s := range list {
		out = append(out, time.Duration(s*float64(time.Second)))
	}
	return out
}

// A TermPoint is the server's work with caches of one TTL, in percent of that without.
type TermPoint struct {
	// Term is the TTL, in seconds.
	Term float64 `json:"term_s"`
	// Messages are those that a read costs: questions and answers, renewals,
	// invalidations and what acknowledges them. CPU is the process's time, less what it
	// takes for the writes alone without caches.
	Messages float64 `json:"messages"`
	CPU      float64 `json:"cpu"`
}

// cacheTerms measures the server's work without caches, and with caches of several TTLs.
func cacheTerms(s sharing) func(context.Context, *Env) (Result, error) {
	return func(ctx context.Context, e *Env) (Result, error) {
		var f figures
		quiet := s
		quiet.reads = 0
		writes, err := e.atRates(ctx, quiet, 0)
		if err != nil {
			return Result{}, err
		}
		f.add("writes alone, server", 1000*writes.cpu, "ms/s")
		without, err := e.atRates(ctx, s, 0)
		if err != nil {
			return Result{}, err
		}
		if err := without.less(writes); err != nil {
			return Result{}, err
		}
		f.add("without caches, server", 1e6*without.cpu, "us/read")
		f.add("without caches", without.messages, "messages/read")
		var curve []TermPoint
		if native(e.Sessions[0]) == nil {
			return Result{More: f}, nil
		}
		for _, t := range s.terms {
			name := fmt.Sprintf("TTL %v, ", t)
			with, err := e.atRates(ctx, s, t)
			if err != nil {
				return Result{}, err
			}
			if err := with.less(writes); err != nil {
				return Result{}, err
			}
			p := TermPoint{
				Term: t.Seconds(), CPU: 100 * with.cpu / without.cpu,
				Messages: 100 * with.messages / without.messages,
			}
			curve = append(curve, p)
			f.add(name+"server", 1e6*with.cpu, "us/read")
			f.add(name+"of that without", p.CPU, "%")
			f.add(name+"messages of those without", p.Messages, "%")
		}
		return Result{More: f, Curve: curve}, nil
	}
}

// work is what stations are to the server, a second; after less, what a read is.
type work struct{ reads, cpu, messages float64 }

// less takes the CPU of what there is besides reads off, and makes it all that of a read.
func (w *work) less(o work) error {
	if w.reads == 0 {
		return errors.New("bench: nothing was read")
	}
	w.cpu = (w.cpu - o.cpu) / w.reads
	w.messages /= w.reads
	return nil
}

// A station is a client that reads and writes one key, at random moments.
type station struct {
	session Session
	cache   *cache.Cache // nil without
	key     string
	reads   *atomic.Int64
}

// atRates lets stations read and write, with caches if there is a TTL, and measures the
// server's work.
func (e *Env) atRates(ctx context.Context, s sharing, ttl time.Duration) (work, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	var reads atomic.Int64
	var caches []*cache.Cache
	// The clients begin over the time between two renewals, that these come evenly.
	begin := rate{every: ttl / 3 / stations, next: time.Now()}
	for i, session := range e.Sessions {
		st := station{session: session, key: fmt.Sprintf("term/%d", i/s.caches), reads: &reads}
		if err := begin.wait(ctx); err != nil {
			return work{}, err
		}
		if ttl > 0 {
			c, err := cache.Open(ctx, native(session), []store.KeyRange{{Key: st.key}},
				cache.Options{TTL: ttl})
			if err != nil {
				return work{}, err
			}
			st.cache, caches = c, append(caches, c)
		}
		for _, loop := range []func() error{
			func() error { return atRandom(ctx, s.reads, st.read) },
			func() error { return atRandom(ctx, s.writes, st.write) },
		} {
			wg.Go(func() {
				if err := loop(); err != nil {
					cancel(err)
				}
			})
		}
	}
	w, err := e.workOf(ctx, caches, &reads, max(e.Duration, ttl/6))
	if err != nil {
		return work{}, err
	}
	cancel(nil)
	wg.Wait()
	return w, closeCaches(context.WithoutCancel(ctx), caches)
}

// workOf measures for so long what stations are to the server.
func (e *Env) workOf(
	ctx context.Context, caches []*cache.Cache, reads *atomic.Int64, d time.Duration,
) (work, error) {
	if err := sleepUntil(ctx, time.Now().Add(warmUp)); err != nil {
		return work{}, err
	}
	var m measure
	asked, err := e.asked(ctx, caches)
	if err != nil {
		return work{}, err
	}
	before := reads.Load()
	err = m.during(e.Server, func() error { return sleepUntil(ctx, time.Now().Add(d)) })
	n := float64(reads.Load() - before)
	if err != nil {
		return work{}, err
	}
	after, err := e.asked(ctx, caches)
	if err != nil {
		return work{}, err
	}
	w := work{messages: 2 * n} // each has an answer
	if caches != nil {
		w.messages = 2 * (after - asked)
	}
	perSecond := 1 / m.elapsed.Seconds()
	w.reads, w.cpu = n*perSecond, m.cpu.Seconds()*perSecond
	w.messages *= perSecond
	return w, nil
}

// asked is how many messages that have an answer there were between caches and the server.
func (e *Env) asked(ctx context.Context, caches []*cache.Cache) (float64, error) {
	if caches == nil {
		return 0, nil
	}
	n := 0.0
	for _, m := range e.Server.members { // each counts those of its own clients
		renewals, err := scrape(ctx, "http://"+m.endpoint+"/metrics",
			"leasehold_lease_renewals_total")
		if err != nil {
			return 0, err
		}
		n += renewals
	}
	for _, c := range caches {
		s := c.Stats()
		n += float64(s.Fills + s.Invalidations)
	}
	return n, nil
}

func (s station) read(ctx context.Context) (err error) {
	if s.cache != nil {
		_, _, err = s.cache.Get(ctx, s.key)
	} else {
		err = sessionGetter(false)(ctx, s.session, s.key)
	}
	s.reads.Add(1)
	return err
}

func (s station) write(ctx context.Context) error {
	return s.session.Put(ctx, s.key, make([]byte, load.ValueSize))
}

// A rate lets something happen at a pace.
type rate struct {
	every time.Duration
	next  time.Time
}

func (r *rate) wait(ctx context.Context) error {
	r.next = r.next.Add(r.every)
	return sleepUntil(ctx, r.next)
}

// atRandom does something so often a second on average, each time independent of the others,
// until the context ends.
func atRandom(ctx context.Context, perSecond float64, f func(context.Context) error) error {
	if perSecond == 0 {
		return nil
	}
	r := rate{next: time.Now()}
	for {
		r.every = time.Duration(rand.ExpFloat64() / perSecond * float64(time.Second))
		if r.wait(ctx) != nil {
			return nil
		}
		if err := f(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// scrape adds up the lines of a metric on a page.
func scrape(ctx context.Context, url, name string) (sum float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err
	}
	found := false
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 2 && strings.HasPrefix(words[0], name) {
			v, err := strconv.ParseFloat(words[1], 64)
			if err != nil {
				return 0, fmt.Errorf("bench: metric %s: %w", name, err)
			}
			sum, found = sum+v, true
		}
	}
	if !found {
		return 0, errors.New("bench: there is no metric " + name)
	}
	return sum, nil
}

// WriteCurve writes the medians of the first series that has a curve, a line for each TTL,
// as lines of the term in seconds, and messages and CPU in percent of those without leases.
func WriteCurve(w io.Writer, series []*Series) error {
	i := slices.IndexFunc(series, func(s *Series) bool {
		return len(s.Rounds) > 0 && len(s.Rounds[0].Curve) > 0
	})
	if i < 0 {
		return errors.New("bench: no workload of cache-term was run")
	}
	fmt.Fprintln(w, "# term in seconds, messages and CPU in percent of those without caches")
	s := series[i]
	for k, p := range s.Rounds[0].Curve {
		pick := func(f func(TermPoint) float64) float64 {
			return s.spread(func(r Result) float64 { return f(r.Curve[k]) }).Median
		}
		_, err := fmt.Fprintf(w, "%g,%.2f,%.2f\n", p.Term,
			pick(func(p TermPoint) float64 { return p.Messages }),
			pick(func(p TermPoint) float64 { return p.CPU }))
		if err != nil {
			return err
		}
	}
	return nil
}
