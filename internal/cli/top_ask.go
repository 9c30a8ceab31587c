package cli

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/top"
	"leasehold.dev/lease"
)

const (
	// answersWithin is how long an answer that the screen waits for may take.
	answersWithin = 2 * time.Second
	// waitsEvery is how often wait queues are looked for while they are seen.
	waitsEvery = 3 * time.Second
)

// pause waits for a while, or until somebody pokes.
func pause(ctx context.Context, d time.Duration, poked <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-poked:
	case <-ctx.Done():
	}
}

// follow follows what happens to leases. Where the members do not know any more what came next, it
// begins anew.
func (t *topRun) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		asked := t.now()
		err := t.followOnce(ctx)
		if err := t.silence(ctx, asked, err); err != nil {
			return err
		}
		pause(ctx, time.Second, nil)
	}
	return nil
}

func (t *topRun) followOnce(ctx context.Context) error {
	begin, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	w, err := t.client.LeaseEvents(begin, t.watchOf())
	if err != nil {
		return err
	}
	defer w.Close()
	// The events are followed first, and then the leases are listed: nothing is missed.
	t.tell(ctx, (*top.Model).Begin)
	listing, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { t.list(listing) })
	for {
		u, err := w.Next(ctx)
		if err != nil {
			return err
		}
		now := t.now()
		t.tell(ctx, func(m *top.Model) { m.Events(u.Events, now) })
	}
}

// list lists all leases, and begins anew if it fails.
func (t *topRun) list(ctx context.Context) {
	const part = 1000
	for ctx.Err() == nil {
		asked := t.now()
		var some []leases.Info
		more := true
		give := func() {
			list := some
			some = nil
			t.ask(ctx, func(m *top.Model) { more = m.List(list, asked) })
		}
		var err error
		for l, e := range t.client.List(ctx, t.filterOf()) {
			if err = e; err != nil {
				break
			}
			if some = append(some, l); len(some) == part {
				give()
			}
			if !more {
				break
			}
		}
		if err == nil {
			give()
			t.tell(ctx, func(m *top.Model) { m.Finish(asked) })
			return
		}
		if err := t.silence(ctx, asked, err); err != nil {
			t.failed <- err
			return
		}
		pause(ctx, time.Second, nil)
	}
}

// refresh asks again and again for the leases that are seen, in one call. Without any it asks for
// something else, to know whether the cluster answers.
func (t *topRun) refresh(ctx context.Context) error {
	for ctx.Err() == nil {
		var ids []lease.ID
		var open lease.ID
		t.ask(ctx, func(m *top.Model) { ids, open = m.Wanted(), m.Opened() })
		asked := t.now()
		if err := t.refreshOnce(ctx, ids, open, asked); err != nil {
			if err := t.silence(ctx, asked, err); err != nil {
				return err
			}
		}
		pause(ctx, tick/5, nil) // keys come faster
		pause(ctx, tick-tick/5, t.poked)
	}
	return nil
}

func (t *topRun) refreshOnce(
	ctx context.Context, ids []lease.ID, open lease.ID, asked time.Duration,
) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	var infos []leases.Info
	if len(ids) > 0 {
		for l, err := range t.client.List(ctx, leases.Filter{IDs: ids}) {
			if err != nil {
				return err
			}
			infos = append(infos, l)
		}
	} else {
		_, err := t.client.Range(ctx, store.Range{Key: "\x00", CountOnly: true})
		if err != nil && !errors.Is(err, client.ErrPermissionDenied) { // that is an answer, too
			return err
		}
	}
	t.tell(ctx, func(m *top.Model) { m.Answer(ids, infos, asked) })
	if open == 0 {
		return nil
	}
	info, err := t.client.DescribeKeys(ctx, leases.Ref{ID: open})
	switch {
	case errors.Is(err, client.ErrLeaseNotFound):
		t.tell(ctx, func(m *top.Model) { m.Describe(open, nil) })
	case err != nil:
		return err
	default:
		t.tell(ctx, func(m *top.Model) { m.Describe(open, &info) })
	}
	return nil
}

// waits looks for wait queues while they are seen.
func (t *topRun) waits(ctx context.Context) error {
	for ctx.Err() == nil {
		wanted := false
		t.ask(ctx, func(m *top.Model) { wanted = m.WantsWaits() })
		if !wanted {
			pause(ctx, tick/5, nil)
			continue
		}
		asked := t.now()
		kvs, more, err := t.keys(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			t.tell(ctx, func(m *top.Model) { m.NoKeys(err.Error()) })
		default:
			t.tell(ctx, func(m *top.Model) { m.Keys(kvs, more, asked) })
		}
		pause(ctx, waitsEvery, nil)
	}
	return nil
}

// keys reads the keys with the prefix, without their values, and says whether there are more.
func (t *topRun) keys(ctx context.Context) (kvs []store.KV, more bool, err error) {
	const part, most = 2000, 20_000
	r := store.Prefix(t.flags.prefix)
	key := r.Key
	for len(kvs) < most {
		short, cancel := context.WithTimeout(ctx, t.a.flags.commandTimeout)
		got, err := t.client.Range(short, store.Range{
			Key: key, End: r.End, Limit: part, KeysOnly: true,
		})
		cancel()
		if err != nil {
			return nil, false, err
		}
		kvs = append(kvs, got.KVs...)
		if !got.More || len(got.KVs) == 0 {
			return kvs, false, nil
		}
		key = got.KVs[len(got.KVs)-1].Key + "\x00"
	}
	return kvs, true, nil
}

// look asks all members again and again how they are.
func (t *topRun) look(ctx context.Context) error {
	for ctx.Err() == nil {
		at := t.now()
		s := t.lookout.look()
		s.judge()
		c := top.Cluster{
			Verdict: s.Verdict, Reasons: s.Reasons, Members: make([]top.Member, len(s.Members)),
		}
		var wg sync.WaitGroup
		for i, x := range s.Members {
			m := &c.Members[i]
			*m = top.Member{
				Name: x.Name, ID: x.ID, Role: x.Role, Version: x.Version, Error: x.Error,
				Took: time.Duration(x.Took), Behind: x.Behind, State: x.State, Full: x.Quota,
			}
			if x.Error == "" {
				wg.Go(func() {
					if text, err := t.pages.get(x, "/metrics"); err == nil {
						m.Figures = figuresIn(text)
					}
				})
			}
		}
		wg.Wait()
		t.tell(ctx, func(m *top.Model) { m.Look(c, at) })
		pause(ctx, t.flags.interval, nil)
	}
	return nil
}

// figuresIn reads what /metrics says, nil if it says nothing that can be read.
func figuresIn(text []byte) *top.Figures {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil || families["leasehold_leases"] == nil {
		return nil
	}
	sum := func(name, label string) (n float64) {
		for _, m := range families[name].GetMetric() {
			if label == "" || len(m.GetLabel()) > 0 && m.GetLabel()[0].GetValue() == label {
				n += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return n
	}
	return &top.Figures{
		Leases:     sum("leasehold_leases", ""),
		Granted:    sum("leasehold_leases_granted_total", ""),
		Expired:    sum("leasehold_leases_expired_total", ""),
		Revoked:    sum("leasehold_leases_revoked_total", ""),
		Renewed:    sum("leasehold_lease_renewals_total", "renewed"),
		NearMisses: sum("leasehold_lease_renewal_near_misses_total", ""),
		CacheWaits: sum("leasehold_cache_writes_waiting", ""),
		Overdue: time.Duration(sum("leasehold_lease_overdue_seconds", "") *
			float64(time.Second)),
		Sync: histogramIn(families["leasehold_log_sync_duration_seconds"]),
		Late: histogramIn(families["leasehold_lease_expiry_lateness_seconds"]),
	}
}

// histogramIn reads a histogram that has no labels.
func histogramIn(f *dto.MetricFamily) (h top.Histogram) {
	if len(f.GetMetric()) == 0 {
		return h
	}
	all := f.GetMetric()[0].GetHistogram()
	counts := map[float64]uint64{math.Inf(1): all.GetSampleCount()}
	for _, b := range all.GetBucket() {
		counts[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	for _, bound := range slices.Sorted(maps.Keys(counts)) {
		h.Bounds = append(h.Bounds, bound)
		h.Counts = append(h.Counts, counts[bound])
	}
	return h
}
