package bubble

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/queue"
	"leasehold.dev/client/store"
	"leasehold.dev/test/history"
)

// lateness is how long after the end of its TTL an abandoned lease may still exist.
const lateness = 30 * time.Second

// audit checks that nothing was lost. It runs once the cluster is healthy again.
func (w *World) audit(p *process) {
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Minute)
	defer cancel()
	if err := errors.Join(w.readAll(ctx, p), w.drain(ctx, p), w.forgotten(ctx, p),
		w.hashes(ctx, p)); err != nil {
		w.h.Violate("live", "the healthy cluster does not answer: %v", err)
	}
}

// readAll reads the registers of the most recent epochs.
func (w *World) readAll(ctx context.Context, p *process) error {
	now := w.h.Now() / epoch
	for e := max(0, now-2); e <= now; e++ {
		for i := range 3 {
			o := w.h.Call(&history.Op{By: "auditor", Key: fmt.Sprintf("%s%d/%d", registers, e, i)})
			kv, err := p.c.Get(ctx, o.Key)
			if errors.Is(err, client.ErrKeyNotFound) {
				err = nil
			}
			o.Got = string(kv.Value)
			w.h.Return(o, outcomeOf(err))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// drain processes the remaining queue items and checks that none is missing.
func (w *World) drain(ctx context.Context, p *process) error {
	q := p.queue()
	for {
		err := q.Work(ctx, queue.Work{Idle: true, Do: func(_ context.Context, i *queue.Item) error {
			w.h.done(string(i.Payload()))
			return nil
		}})
		if err != nil {
			return err
		}
		s, err := q.Stats(ctx)
		if err != nil {
			return err
		}
		if s.Ready+s.Claimed+s.Delayed == 0 {
			break
		}
		time.Sleep(time.Second)
	}
	w.h.checkItems()
	return nil
}

// forgotten checks that the leases of ended clients are gone.
func (w *World) forgotten(ctx context.Context, p *process) error {
	time.Sleep(10*time.Second + lateness)
	r, err := p.c.Range(ctx, store.Prefix(leased).Range())
	if err != nil {
		return err
	}
	for _, kv := range r.KVs {
		w.h.Violate("L2", "%s of %s still exists although nothing keeps lease %x alive", kv.Key, kv.Value,
			kv.Lease)
	}
	return nil
}

// hashes compares the members' states.
func (w *World) hashes(ctx context.Context, p *process) error {
	r, err := p.etcd.Get(ctx, "none")
	if err != nil {
		return err
	}
	first := uint32(0)
	for i, m := range w.members {
		h, err := p.etcd.HashKV(ctx, clientAddr(m.name), r.Header.Revision)
		if err != nil {
			return fmt.Errorf("hash of %s: %w", m.name, err)
		}
		if i == 0 {
			first = h.Hash
		} else if h.Hash != first {
			w.h.Violate("S3", "%s has hash %x at revision %d, %s has %x", m.name, h.Hash,
				r.Header.Revision, w.members[0].name, first)
		}
	}
	return nil
}
