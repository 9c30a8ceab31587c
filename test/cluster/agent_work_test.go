package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	native "leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/members"
	"leasehold.dev/client/nodes"
	"leasehold.dev/client/pool"
	"leasehold.dev/client/queue"
	"leasehold.dev/client/store"
)

// What agents share beside locks.
const (
	thePool    = "pool"
	theGroup   = "group"
	theNodes   = "nodes"
	theQueue   = "queue"
	thePrimary = theNodes + "/primary"

	poolSize   = 4
	quarantine = 300 * time.Millisecond
	groupSize  = 5
	maxTries   = 5

	// poison begins what no worker ever acknowledges.
	poison = "poison-"
	// donePrefix begins the keys that say which items were done, by which lease.
	donePrefix = "done/"
)

var poolSpec = pool.Spec{First: 1, Last: poolSize, Quarantine: quarantine}

func usePool(h *hand) error {
	h.doing = "pool"
	ctx, cancel := h.brief()
	defer cancel()
	p, err := pool.Create(ctx, h.conn(), usedPrefix+thePool, poolSpec)
	if err != nil {
		return err
	}
	r := pool.Request{Owner: h.Name, TTL: h.ttl(), Wait: h.rng.IntN(2) == 0}
	if h.rng.IntN(4) == 0 {
		r.Want = fmt.Sprint(1 + h.rng.IntN(poolSize))
	}
	if h.rng.IntN(4) == 0 {
		r.Grace = h.ttl()
	}
	l, err := p.Acquire(ctx, r)
	if err != nil {
		return err
	}
	defer l.Lease().Close()
	return h.use(&thing{
		what: thePool + "/" + l.ID(), mode: modeAlone, token: uint64(l.Token()),
		mark: int64(l.Token()), lease: l.Lease(), err: l.Err, owner: l.Owner(), give: l.Release,
	})
}

func useGroup(h *hand) error {
	h.doing = "group"
	c := h.conn()
	ctx, cancel := h.brief()
	defer cancel()
	r := members.Registration{
		ID: fmt.Sprint(h.rng.IntN(groupSize)), TTL: h.ttl(), Wait: h.rng.IntN(2) == 0,
	}
	if h.rng.IntN(3) == 0 {
		l, err := c.Grant(ctx, native.Grant{TTL: h.ttl()})
		if err != nil {
			return err
		}
		defer h.revoke(l)
		r.Lease = l
	}
	m, err := members.New(c, usedPrefix+theGroup).Register(ctx, r)
	if err != nil {
		return err
	}
	x := &thing{
		what: theGroup + "/" + r.ID, mode: modeShared, mark: int64(m.Lease().ID()),
		lease: m.Lease(), err: m.Err,
	}
	span := h.hold(x)
	for range h.rng.IntN(3) {
		h.have(h.ctx, span, x, h.stint())
		if err := m.Update(ctx, []byte(h.unique())); err != nil {
			h.write(note{Verb: noteError, What: "update", Text: err.Error()})
		}
	}
	h.have(h.ctx, span, x, h.stint())
	h.write(note{Verb: noteLeaving, Lease: int64(m.Lease().ID())})
	if h.one(4) {
		h.end(span, endClosed)
		m.Lease().Close()
		return nil
	}
	h.end(span, endGiven)
	last, done := h.last()
	defer done()
	return m.Release(last)
}

func watchGroup(h *hand) error {
	h.doing = "group watch"
	name := h.unique()
	w, err := members.New(h.conn(), usedPrefix+theGroup).Watch(h.ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		events, err := w.Next(h.ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			h.write(told(name, e))
		}
		if h.one(200) {
			return nil
		}
	}
}

// told is the note of what a watch of the group told.
func told(name string, e members.Event) note {
	return note{
		Verb: noteMember, What: name, Mode: e.Change.String(), Mark: int64(e.Member.Lease),
		Text: e.Member.ID + "=" + string(e.Member.Metadata), Revision: e.Revision,
	}
}

func beNode(h *hand) error {
	h.doing = "node"
	ctx, cancel := h.brief()
	defer cancel()
	cfg := nodes.Config{ID: h.Name, TTL: h.ttl(), Wait: h.rng.IntN(2) == 0}
	if h.rng.IntN(4) == 0 {
		cfg.Grace = h.ttl()
	}
	n, err := nodes.New(h.conn(), usedPrefix+theNodes).Join(ctx, cfg)
	if err != nil {
		return err
	}
	x := &thing{
		what: theNodes + "/" + h.Name, mode: modeShared, mark: int64(n.Lease().Token()),
		lease: n.Lease(), err: n.Lease().Err,
	}
	span := h.hold(x)
	h.have(ctx, span, x, h.stint())
	err = n.Lead(ctx, h.bePrimary)
	h.have(ctx, span, x, h.stint())
	h.end(span, endGiven)
	last, done := h.last()
	defer done()
	if h.one(5) {
		n.Lease().Close()
		return err
	}
	return errors.Join(err, n.Release(last))
}

// bePrimary is the primary until the context ends, or for as long as it likes.
func (h *hand) bePrimary(ctx context.Context, p *nodes.Primacy) error {
	x := &thing{
		what: thePrimary, mode: modeAlone, token: uint64(p.Token()), mark: int64(p.Token()),
		lease: p.Lease(), err: p.Err, owner: p.Owner(),
	}
	span := h.hold(x)
	h.have(ctx, span, x, 2*h.stint())
	h.end(span, endGiven)
	switch {
	case h.one(8):
		p.Lease().Close()
	case h.one(8):
		h.drop(h.at)
	}
	return nil
}

// look looks who has what.
func look(h *hand) error {
	h.doing = "look"
	ctx, cancel := h.brief()
	defer cancel()
	h.pause(20, 100)
	c, from := h.conn(), machineTime()
	marks := make(map[string]int64)
	var err error
	switch h.rng.IntN(4) {
	case 0:
		var l lock.LeaderInfo
		l, err = lock.NewElection(c, usedPrefix+theElection).Leader(ctx)
		marks[theElection] = l.Since
	case 1:
		err = lookAtNodes(ctx, h, c, marks)
	case 2:
		for i := range poolSize {
			marks[fmt.Sprintf("%s/%d", thePool, i+1)] = 0
		}
		var p *pool.Pool
		if p, err = pool.Open(ctx, c, usedPrefix+thePool); err != nil {
			return err
		}
		var list []pool.Entry
		list, err = p.List(ctx)
		for _, e := range list {
			if !e.Quarantined {
				marks[thePool+"/"+e.ID] = int64(e.Token)
			}
		}
	default:
		for i := range groupSize {
			marks[fmt.Sprintf("%s/%d", theGroup, i)] = 0
		}
		var list []members.Member
		list, _, err = members.New(c, usedPrefix+theGroup).List(ctx)
		for _, m := range list {
			marks[theGroup+"/"+m.ID] = int64(m.Lease)
		}
	}
	if err != nil {
		return err
	}
	at := machineTime()
	for what, mark := range marks {
		h.write(note{Verb: noteSight, What: what, Mark: mark, From: from, At: at})
	}
	return nil
}

func lookAtNodes(
	ctx context.Context, h *hand, c *native.Client, marks map[string]int64,
) error {
	v, err := nodes.New(c, usedPrefix+theNodes).List(ctx)
	if err != nil {
		return err
	}
	for _, name := range h.Others {
		marks[theNodes+"/"+name] = int64(v.Node(name).Token)
	}
	marks[thePrimary] = int64(v.Token)
	return nil
}

func (h *hand) queue(c *native.Client) *queue.Queue {
	return queue.New(c, usedPrefix+theQueue, queue.Config{
		TTL: h.ttl(), MaxTries: maxTries, Worker: h.Name,
	})
}

func pushItems(h *hand) error {
	h.doing = "push"
	h.pause(100, 300)
	if h.calm.Load() || h.ctx.Err() != nil {
		h.pause(100, 300)
		return nil
	}
	ctx, cancel := h.brief()
	defer cancel()
	n, delay := 1, time.Duration(0)
	if h.rng.IntN(3) == 0 {
		n = 1 + h.rng.IntN(5)
	}
	if h.rng.IntN(3) == 0 {
		delay = between(h.rng, 1, 700)
	}
	payloads := make([][]byte, n)
	for i := range payloads {
		text := h.unique()
		if h.rng.IntN(12) == 0 {
			text = poison + text
		}
		payloads[i] = []byte(text)
		h.write(note{Verb: notePush, Text: text, Delay: delay})
	}
	ids, err := h.queue(h.conn()).PushAll(ctx, payloads, delay)
	if err != nil {
		return err
	}
	for i, id := range ids {
		h.write(note{Verb: notePushed, What: id, Text: string(payloads[i])})
	}
	return nil
}

// claimItems claims items one by one.
func claimItems(h *hand) error {
	h.doing = "claim"
	q := h.queue(h.conn())
	for h.ctx.Err() == nil {
		ctx, cancel := h.brief()
		claim := q.Claim
		if h.rng.IntN(4) == 0 {
			claim = q.TryClaim
		}
		i, err := claim(ctx)
		cancel()
		switch {
		case err != nil:
			return err
		case i == nil:
			h.pause(1, 100)
			continue
		}
		err = h.handle(h.ctx, i)
		i.Lease().Close() // of no effect if the item is done, or given back
		if err != nil {
			return err
		}
	}
	return nil
}

// workOnItems lets the queue call.
func workOnItems(h *hand) error {
	h.doing = "work"
	ctx, cancel := context.WithTimeout(h.ctx, between(h.rng, 200, 5000))
	defer cancel()
	err := h.queue(h.conn()).Work(ctx, queue.Work{
		Do: h.handle, Delay: between(h.rng, 1, 200), Idle: h.rng.IntN(2) == 0,
	})
	if err != nil && ctx.Err() != nil {
		return nil
	}
	return err
}

var errDied = errors.New("the worker is dead")

// handle does what is to be done with an item, or something else.
func (h *hand) handle(ctx context.Context, i *queue.Item) error {
	h.write(note{
		Verb: noteClaim, What: i.ID(), Lease: int64(i.Lease().ID()), Tries: i.Tries(),
		Text: string(i.Payload()),
	})
	x := &thing{
		what: theQueue + "/" + i.ID(), mode: modeAlone, token: uint64(i.Token()),
		lease: i.Lease(), err: i.Lease().Err, owner: i.Owner(),
	}
	span := h.hold(x)
	h.have(ctx, span, x, between(h.rng, 0, 40))
	ack := func(ctx context.Context) error {
		return i.AckWith(ctx, store.Put{
			Key: donePrefix + string(i.Payload()), Value: fmt.Appendf(nil, "%x", int64(i.Lease().ID())),
		})
	}
	last, done := h.last()
	defer done()
	way := h.rng.IntN(20)
	switch {
	case h.calm.Load():
		way = 0
	case way == 19 && h.rng.IntN(3) == 0:
		h.have(ctx, span, x, between(h.rng, 200, 1500))
	}
	if strings.HasPrefix(string(i.Payload()), poison) && way != 16 {
		way = 15
	}
	switch way {
	case 14, 15: // back, with a delay
		h.end(span, endGiven)
		delay := between(h.rng, 0, 400)
		h.write(note{Verb: noteNack, Lease: int64(i.Lease().ID()), Delay: delay})
		return i.Nack(last, delay)
	case 16: // dies
		h.end(span, endClosed)
		i.Lease().Close()
		return errDied
	case 17: // is late
		h.end(span, endClosed)
		i.Lease().Close()
		h.pause(1, 2500)
	case 18: // is hasty
		h.end(span, endGiven)
		hasty, cancel := context.WithTimeout(last, between(h.rng, 0, 5)-time.Millisecond)
		defer cancel()
		if err := ack(hasty); err == nil || errors.Is(err, queue.ErrLost) {
			return err
		}
	case 13:
		h.end(span, endGiven)
		h.drop(h.at)
		return errDied
	default:
		h.end(span, endGiven)
	}
	return ack(last)
}

// requeueItems gives the dead another chance.
func requeueItems(h *hand) error {
	h.doing = "requeue"
	h.pause(500, 1500)
	if h.calm.Load() || h.ctx.Err() != nil {
		return nil
	}
	ctx, cancel := h.brief()
	defer cancel()
	q := h.queue(h.conn())
	dead, err := q.Dead(ctx, "", 5)
	if err != nil || len(dead) == 0 {
		return err
	}
	var ids []string
	for _, i := range dead {
		ids = append(ids, i.ID)
	}
	_, err = q.Requeue(ctx, ids...)
	return err
}
