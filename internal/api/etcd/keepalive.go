package etcd

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/mem"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/lease"
)

// maxRenewals limits the unanswered renewals of one stream, and thus the stream's memory. If a
// client does not read its responses, the member stops reading its requests.
const maxRenewals = 4096

// maxTended limits the number of leases that a stream tracks. When the stream ends, it reports
// these leases as untended. The leader detects any other leases when they become silent.
const maxTended = 4096

// LeaseKeepAlive implements pb.LeaseServer.
//
// One goroutine receives and submits renewals. The calling goroutine sends outcomes as they arrive,
// in any order, because clients match them by lease. Therefore, a slow renewal, such as for a lease
// that is about to expire, does not delay others (T15).
func (s *leaseService) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	k := &keepAlive{
		service: s,
		stream:  stream,
		wake:    make(chan struct{}, 1),
		room:    make(chan struct{}, 1),
		permits: permits{service: s},
	}
	k.permits.ctx, k.permits.cancel = context.WithCancel(stream.Context())
	defer k.permits.close()
	go k.receive(stream.Context())
	return k.send(stream.Context())
}

// keepAlive is one open stream.
type keepAlive struct {
	service *leaseService
	stream  pb.Lease_LeaseKeepAliveServer
	wake    chan struct{} // capacity 1: send has work
	room    chan struct{} // capacity 1: open has been lowered
	permits permits

	mu   sync.Mutex // guards the following fields
	done []*renewal // outcomes to send
	free []*renewal
	// open is the number of outstanding renewals.
	//
	// Invariant: open <= maxRenewals.
	open int
	end  error // the error that ended receiving; io.EOF if the client has finished
}

// renewal is one renewal on a stream, from its receipt to its response.
type renewal struct {
	owner *keepAlive
	// revision and term were read before the renewal was submitted. A client that sees a lease
	// revoked at some revision must not see it renewed at a later one.
	revision int64
	term     uint64
	holder   *access.Caller // the caller for the core to check; nil if no check is needed
	id       lease.ID
	ttl      lease.TTL
	err      error
}

// Holder implements Renewed.
func (r *renewal) Holder() *access.Caller { return r.holder }

// Renewed implements Renewed.
func (r *renewal) Renewed(id lease.ID, ttl lease.TTL, err error) {
	k := r.owner
	r.id, r.ttl, r.err = id, ttl, err
	if errors.Is(err, api.ErrUndecided) {
		k.permits.undecided(r)
		return
	}
	k.mu.Lock()
	k.done = append(k.done, r)
	first := len(k.done) == 1
	k.mu.Unlock()
	if first {
		signal(k.wake)
	}
}

// receive submits renewals until the client finishes or the stream ends.
func (k *keepAlive) receive(ctx context.Context) {
	if err := k.receiveAll(ctx); err != nil {
		k.finish(err)
	}
}

// receiveAll returns nil if ctx ends first. In that case, send has returned or is about to.
func (k *keepAlive) receiveAll(ctx context.Context) (err error) {
	defer k.service.panics.End("keep alive", &err)
	var req pb.LeaseKeepAliveRequest
	for {
		if err := k.stream.RecvMsg(&req); err != nil {
			return err
		}
		r := k.take(ctx)
		if r == nil {
			return nil
		}
		if err := k.service.renewals.Wait(ctx); err != nil {
			return nil
		}
		v := k.service.node.View()
		r.revision, r.term = v.KV.Revision(), v.Term
		var err error
		if r.holder, err = k.permits.holder(ctx, v, lease.ID(req.ID)); err != nil {
			r.Renewed(lease.ID(req.ID), 0, err)
			continue
		}
		if err := k.service.node.Renew(lease.ID(req.ID), v.Access, r); err != nil {
			r.Renewed(lease.ID(req.ID), 0, err)
		}
	}
}

// user returns the principal of the stream, or "" if there is none.
func (k *keepAlive) user() string { return api.CallerOf(k.stream.Context()).User }

// take returns an unused renewal. It waits until fewer than maxRenewals are open. If ctx ends
// first, take returns nil.
func (k *keepAlive) take(ctx context.Context) *renewal {
	for {
		k.mu.Lock()
		if k.open < maxRenewals {
			k.open++
			n := len(k.free)
			if n == 0 {
				k.mu.Unlock()
				return &renewal{owner: k}
			}
			r := k.free[n-1]
			k.free = k.free[:n-1]
			k.mu.Unlock()
			return r
		}
		k.mu.Unlock()
		select {
		case <-k.room:
		case <-ctx.Done():
			return nil
		}
	}
}

// finish records that receiving has ended.
func (k *keepAlive) finish(err error) {
	k.mu.Lock()
	k.end = err
	k.mu.Unlock()
	signal(k.wake)
}

// send sends the responses until the stream ends. A client that has closed its side still receives
// its responses.
func (k *keepAlive) send(ctx context.Context) error {
	msg := &renewedFrame{identity: k.service.identity}
	// Only leases that the caller may renew are tracked, so a caller cannot declare other leases
	// untended.
	tended := make(map[lease.ID]struct{})
	defer func() {
		if len(tended) > 0 {
			k.service.node.Abandon(slices.Sorted(maps.Keys(tended)))
		}
	}()
	var batch []*renewal
	for {
		select {
		case <-k.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-k.service.stop.Done():
			return api.Error(context.Cause(k.service.stop))
		}
		k.mu.Lock()
		batch, k.done = k.done, batch[:0]
		k.mu.Unlock()
		for _, r := range batch {
			if r.err != nil && !isGone(r.err) {
				return api.Error(r.err)
			}
			switch {
			case r.err != nil:
				k.service.renewals.Lost(k.user(), 1)
			case len(tended) < maxTended:
				tended[r.id] = struct{}{}
			}
			msg.set(r)
			if err := k.stream.SendMsg(msg); err != nil {
				return err
			}
		}
		if over, err := k.release(batch); over {
			return err
		}
	}
}

// release frees answered renewals. It reports whether the stream has ended and returns the stream's
// error.
func (k *keepAlive) release(batch []*renewal) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	full := k.open == maxRenewals
	k.open -= len(batch)
	k.free = append(k.free, batch...)
	clear(batch)
	if full && len(batch) > 0 {
		signal(k.room)
	}
	switch {
	case k.end == nil:
		return false, nil
	case errors.Is(k.end, io.EOF):
		return k.open == 0, nil
	default:
		return true, k.end
	}
}

// isGone reports whether a renewal's error means that the lease has ended or must be treated as if
// it had.
func isGone(err error) bool {
	return errors.Is(err, lease.ErrNotFound) || errors.Is(err, lease.ErrExpiring)
}

// signal sends a token to a channel of capacity 1, unless the channel already contains one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// renewedFrame encodes a pb.LeaseKeepAliveResponse.
type renewedFrame struct {
	identity
	revision int64
	term     uint64
	id, ttl  int64
}

func (f *renewedFrame) set(r *renewal) {
	f.revision, f.term = r.revision, r.term
	f.id, f.ttl = int64(r.id), 0
	if r.err == nil {
		f.ttl = wholeSeconds(r.ttl)
	}
}

// buffers implements frame.
func (f *renewedFrame) buffers() mem.BufferSlice {
	h := stamp{f.identity, f.revision, f.term}
	n := blockSize(h.size()) + fieldSize(uint64(f.id)) + fieldSize(uint64(f.ttl))
	b := h.append(make([]byte, 0, n))
	b = appendField(b, varint2, uint64(f.id))
	b = appendField(b, varint3, uint64(f.ttl))
	return mem.BufferSlice{mem.SliceBuffer(b)}
}
