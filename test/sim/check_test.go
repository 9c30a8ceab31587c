package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

var handLimits = Limits{
	Lateness: Second, Recovery: 3 * Second, Linger: 5 * Second, Search: 10_000,
}

// hand builds a history by hand. Like the world, it applies the log to a state machine.
type hand struct {
	h    *History
	m    *fsm.Machine
	term uint64
	// events is the number of lease events so far.
	events uint64
}

func newHand() *hand {
	b := &hand{
		h: &History{Drift: 1e-3, InBound: true, End: 60 * Second},
		m: fsm.New(fsm.Config{}), term: 2,
	}
	b.h.Healthy = []Stretch{{0, 60 * Second}}
	b.h.Restarts = []Restart{{Member: 1, Up: true}, {Member: 2, Up: true}}
	b.role(0, 1, true)
	return b
}

func (b *hand) role(at Time, member uint64, primary bool) {
	b.h.Roles = append(b.h.Roles, Role{
		At: at, Member: member, Term: b.term, Leader: member, Leading: primary, Primary: primary,
		Promoted: primary,
	})
}

// entry applies one entry at member 1.
func (b *hand) entry(at Time, commands ...fsm.Command) *Entry {
	e := &Entry{
		Index: uint64(len(b.h.Log) + firstIndex), Term: b.term, At: at, Taken: at, Member: 1,
		Commands: commands, Origins: make([]fsm.Origin, len(commands)),
	}
	b.m.Begin(e.Index, e.Term)
	for _, c := range commands {
		before, keys := b.leases(), map[lease.ID][]string{}
		for _, i := range before {
			keys[i.ID] = b.m.Lessor().Keys(i.ID)
		}
		r := b.m.Apply(c)
		e.Results = append(e.Results, r)
		b.note(e, c, before, keys)
	}
	e.Changes = b.m.TakeChanges()
	e.Events, _ = eventsAfter(b.m.View().LeaseEvents, b.events)
	b.events += uint64(len(e.Events))
	e.Revision = b.m.View().KV.Revision()
	b.h.Log = append(b.h.Log, e)
	b.h.Applied = append(b.h.Applied,
		Applied{At: at, Member: 1, From: e.Index - 1, To: e.Index},
		Applied{At: at + Millisecond, Member: 2, From: e.Index - 1, To: e.Index})
	return e
}

// note records the effects of a command on existing leases.
func (b *hand) note(
	e *Entry, c fsm.Command, before []lease.Info, keys map[lease.ID][]string,
) {
	_, expired := c.(*fsm.Expire)
	for _, i := range before {
		now, ok := b.m.Lessor().Lookup(i.ID)
		switch {
		case ok && now.Delayed == i.Delayed:
			continue
		case ok:
			e.Ended = append(e.Ended, Ended{Info: now, Expired: expired})
			continue
		}
		d := Ended{Info: i, Expired: expired, Gone: true, Keys: keys[i.ID]}
		if len(d.Keys) > 0 {
			d.Revision = b.m.View().KV.Revision()
		}
		e.Ended = append(e.Ended, d)
	}
	for _, a := range b.leases() {
		if !slices.ContainsFunc(before, func(i lease.Info) bool { return a.Token == i.Token }) {
			e.Granted = append(e.Granted, a)
		}
	}
}

func (b *hand) leases() []lease.Info { return slices.Collect(b.m.Lessor().Leases()) }

func (b *hand) op(client int, kind opKind, start, end Time) *Op {
	op := &Op{
		ID: len(b.h.Ops), Client: client, Member: 1, Kind: kind, Outcome: Done,
		Start: start, End: end, Answered: end,
	}
	b.h.Ops = append(b.h.Ops, op)
	return op
}

// do has a client send a command, which is applied halfway between start and end.
func (b *hand) do(client int, start, end Time, c fsm.Command) *Op {
	op := b.op(client, opCommand, start, end)
	op.Command = c
	op.Fsm = b.entry((start+end)/2, c).Results[0]
	return op
}

func (b *hand) renew(client int, start, end Time, id lease.ID) *Op {
	op := b.op(client, opRenew, start, end)
	op.Lease = id
	if i, ok := b.m.Lessor().Lookup(id); ok {
		op.TTL = i.TTL
	} else {
		op.Err = lease.ErrNotFound
	}
	return op
}

func (b *hand) ttl(client int, start, end Time, id lease.ID) *Op {
	op := b.op(client, opTTL, start, end)
	op.Lease = id
	_, op.Found = b.m.Lessor().Lookup(id)
	return op
}

func (b *hand) read(client int, start, end Time, key string) *Op {
	op := b.op(client, opRange, start, end)
	op.Request.Range = &fsm.Range{Key: key, End: "\x00"}
	r, err := b.m.View().KV.Range(key, "\x00", mvcc.RangeOptions{})
	if err != nil {
		panic(err)
	}
	op.Answer.Range = &r
	return op
}

func (b *hand) expire(at Time, id lease.ID) *Entry {
	i, _ := b.m.Lessor().Lookup(id)
	return b.entry(at, &fsm.Expire{
		Term: b.term, Leases: []lease.Due{{ID: id, Token: i.Token, Stamp: i.Stamp}},
	})
}

func (b *hand) believe(client int, kind beliefKind, what string, lives ...Time) *Belief {
	x := &Belief{
		At: lives[0], Client: client, Kind: kind, What: what, From: lives[0], Until: lives[1],
	}
	b.h.Beliefs = append(b.h.Beliefs, x)
	return x
}

func (b *hand) watch(at Time, from int64) *Watch {
	w := &Watch{
		ID: len(b.h.Watches), Client: 3, Member: 2, At: at, Key: "a", End: "\x00", From: from,
		Resumes: -1, Closed: Never,
	}
	b.h.Watches = append(b.h.Watches, w)
	return w
}

// deliver delivers the changes of an entry to a watch.
func (b *hand) deliver(at Time, w *Watch, e *Entry) *Delivery {
	d := Delivery{At: at, Watch: w.ID, Revision: e.Revision}
	for _, c := range e.Changes {
		d.Events = append(d.Events, c.Events...)
	}
	b.h.Deliveries = append(b.h.Deliveries, d)
	return &b.h.Deliveries[len(b.h.Deliveries)-1]
}

func grant(id lease.ID, ttl lease.TTL, name string) *fsm.Grant {
	return &fsm.Grant{Terms: lease.Terms{ID: id, TTL: ttl, Name: name}}
}

func put(key, value string, id lease.ID) *fsm.Put {
	return &fsm.Put{Key: key, Value: []byte(value), Lease: id}
}

// good returns a correct history. Lease 7 with a TTL of 5 s is granted at 1 s, renewed at 3 s, and
// expires at 8.1 s with two keys. Lease 8 with a TTL of 4 s is revoked. The name moves from lease 7
// to lease 8.
func good() *hand {
	b := newHand()
	w := b.watch(0, 1)
	b.do(1, 1*Second, 1*Second+4*Millisecond, grant(7, 5000, "n"))
	b.do(1, 1100*Millisecond, 1104*Millisecond, put("a", "1", 7))
	b.deliver(1200*Millisecond, w, b.h.Log[1])
	b.do(1, 1200*Millisecond, 1204*Millisecond, put("b", "1", 7))
	b.do(2, 1300*Millisecond, 1304*Millisecond, put("c", "1", 0))
	b.deliver(1400*Millisecond, w, b.h.Log[2])
	b.deliver(1500*Millisecond, w, b.h.Log[3])
	b.do(2, 1600*Millisecond, 1604*Millisecond, grant(8, 4000, "n")) // the name is taken
	b.read(2, 2*Second, 2*Second+2*Millisecond, "a")
	b.renew(1, 3*Second, 3*Second+2*Millisecond, 7)
	b.ttl(2, 4*Second, 4*Second+2*Millisecond, 7)
	b.deliver(8200*Millisecond, w, b.expire(8100*Millisecond, 7))
	b.ttl(2, 9*Second, 9*Second+2*Millisecond, 7)
	b.renew(1, 9100*Millisecond, 9102*Millisecond, 7)
	b.do(2, 9200*Millisecond, 9204*Millisecond, grant(8, 4000, "n"))
	b.read(2, 9300*Millisecond, 9302*Millisecond, "a")
	b.do(2, 9400*Millisecond, 9404*Millisecond, &fsm.Revoke{ID: 8})
	x := b.believe(1, beliefName, "n", 1004*Millisecond, 7990*Millisecond)
	x.Lease, x.Token = 7, 1
	y := b.believe(2, beliefName, "n", 9204*Millisecond, 9400*Millisecond)
	y.Lease, y.Token, y.Released = 8, 2, true
	return b
}

// TestCheckGood checks that a correct history has no violations, and that the search for a
// linearization finishes.
func TestCheckGood(t *testing.T) {
	r := Check(good().h, handLimits)
	for _, v := range r.Violations {
		t.Errorf("%v %s: %s", v.At, v.ID, v.What)
	}
	if r.Searched != 1 || r.Undecided != 0 {
		t.Errorf("searched %d, undecided %d", r.Searched, r.Undecided)
	}
	for _, s := range []string{
		seenExpired, seenExpiredKeys, seenRevoked, seenNameHeld, seenNameAgain, seenRenewNotFound,
		seenBeliefOutlived,
	} {
		if r.Seen[s] == 0 {
			t.Errorf("not seen: %s", s)
		}
	}
}

// bad lists incorrect histories and the invariant that each one breaks. They begin like good.
var bad = []struct {
	id, name string
	make     func() *hand
}{
	{"L1", "expires a TTL after the grant though it was renewed", func() *hand {
		b := good()
		b.h.Log[5].At = 6100 * Millisecond
		return b
	}},
	{"L1", "expires a little early", func() *hand {
		b := good()
		b.h.Log[5].At = 3*Second + 4980*Millisecond
		return b
	}},
	{"L1", "holder believes longer than its lease lives", func() *hand {
		b := good()
		b.h.Beliefs[0].Until = 8200 * Millisecond
		return b
	}},
	{"L2", "never expires", func() *hand {
		b := newHand()
		b.do(1, 1*Second, 1*Second+4*Millisecond, grant(7, 5000, ""))
		return b
	}},
	{"L2", "expires late", func() *hand {
		b := newHand()
		b.do(1, 1*Second, 1*Second+4*Millisecond, grant(7, 5000, ""))
		b.expire(8*Second, 7)
		return b
	}},
	{"L7", "a checkpointed lease gets its full TTL from a new leader", func() *hand {
		b := newHand()
		b.do(1, 1*Second, 1*Second+4*Millisecond, grant(7, 8000, ""))
		b.entry(5*Second, &fsm.Checkpoint{
			Term: b.term, Leases: []lease.Checkpoint{{ID: 7, Token: 1, Remaining: 4000}},
		})
		b.role(6*Second, 1, false)
		b.term++
		b.role(6*Second, 2, true)
		b.expire(14100*Millisecond, 7)
		return b
	}},
	{"L3", "a renewal succeeds after the lease has expired", func() *hand {
		b := good()
		op := b.h.Ops[9]
		op.Err, op.TTL = nil, 5000
		return b
	}},
	{"L3", "a renewal succeeds after a revocation", func() *hand {
		b := good()
		op := b.renew(2, 9500*Millisecond, 9502*Millisecond, 8)
		op.Err, op.TTL = nil, 4000
		return b
	}},
	{"L4", "two hold one name", func() *hand {
		b := good()
		b.h.Beliefs[1].From = 7900 * Millisecond
		return b
	}},
	{"L4", "two hold one lock", func() *hand {
		b := good()
		b.believe(1, beliefLock, "k/", 1*Second, 9*Second)
		b.believe(2, beliefLock, "k/", 2*Second, 3*Second)
		return b
	}},
	{"L5", "a token is used twice", func() *hand {
		b := good()
		e := b.h.Log[6]
		info := e.Granted[0]
		info.Token = 1
		e.Granted[0].Token = 1
		e.Results[0].Value = &info
		b.h.Ops[10].Fsm.Value = &info
		return b
	}},
	{"L6", "expiry leaves a key", func() *hand {
		b := good()
		e := b.h.Log[5]
		e.Changes[0].Events = e.Changes[0].Events[:1]
		return b
	}},
	{"L6", "expiry deletes in two revisions", func() *hand {
		b := good()
		e := b.h.Log[5]
		ev := e.Changes[0].Events
		e.Changes = []fsm.Change{
			{Revision: e.Changes[0].Revision, Events: ev[:1]},
			{Revision: e.Changes[0].Revision + 1, Events: ev[1:]},
		}
		return b
	}},
	{"L6", "a lease of another term's decision ends", func() *hand {
		b := good()
		b.h.Log[5].Commands[0].(*fsm.Expire).Term--
		return b
	}},
	{"S1", "a read misses a write that was acknowledged", func() *hand {
		b := good()
		r := b.h.Ops[5].Answer.Range
		r.KVs, r.Revision = r.KVs[:2], r.Revision-1
		return b
	}},
	{"S1", "a read is of two revisions", func() *hand {
		b := good()
		r := b.h.Ops[5].Answer.Range
		r.KVs = r.KVs[1:]
		return b
	}},
	{"S1", "a lease that is there is not found", func() *hand {
		b := good()
		b.h.Ops[7].Found = false
		return b
	}},
	{"S1", "a renewal finds no lease that is there", func() *hand {
		b := good()
		b.h.Ops[6].Err = lease.ErrNotFound
		return b
	}},
	{"S1", "a command is in the log twice", func() *hand {
		b := good()
		b.entry(10*Second, put("c", "1", 0))
		return b
	}},
	{"S1", "a command that failed is in the log", func() *hand {
		b := good()
		b.h.Ops[3].Outcome = Failed
		return b
	}},
	{"S2", "an acknowledged command is not in the log", func() *hand {
		b := good()
		op := b.op(1, opCommand, 10*Second, 11*Second)
		op.Command, op.Fsm.Revision, op.Fsm.Value = put("d", "1", 0), 6, &fsm.PutResult{}
		return b
	}},
	{"S3", "two states at one index", func() *hand {
		b := good()
		b.h.Hashes = []Hash{{Member: 1, Index: 5, Sum: 1}, {Member: 2, Index: 5, Sum: 2}}
		return b
	}},
	{"W1", "an event is missing", func() *hand {
		b := good()
		b.h.Deliveries = slices.Delete(b.h.Deliveries, 1, 2)
		return b
	}},
	{"W1", "an event comes twice", func() *hand {
		b := good()
		b.h.Deliveries = slices.Insert(b.h.Deliveries, 1, b.h.Deliveries[0])
		return b
	}},
	{"W1", "a watch goes on one revision late", func() *hand {
		b := good()
		b.h.Watches[0].Closed = 1300 * Millisecond
		w := b.watch(1350*Millisecond, 4)
		w.Resumes = 0
		b.h.Deliveries[1].Watch, b.h.Deliveries[2].Watch, b.h.Deliveries[3].Watch = 1, 1, 1
		return b
	}},
	{"W1", "a revision is split across a resume", func() *hand {
		b := good()
		first, rest := &b.h.Deliveries[3], b.h.Deliveries[3]
		ev := first.Events
		first.Events, rest.Events = ev[:1], ev[1:]
		b.h.Watches[0].Closed = 8300 * Millisecond
		w := b.watch(8400*Millisecond, first.Revision)
		w.Resumes = 0
		rest.Watch = 1
		b.h.Deliveries = append(b.h.Deliveries, rest)
		return b
	}},
	{"W1", "a watcher is never told", func() *hand {
		b := good()
		b.h.Deliveries = b.h.Deliveries[:3]
		return b
	}},
	{"W1", "compacted, and was not", func() *hand {
		b := good()
		b.h.Watches[0].Err, b.h.Watches[0].Closed = mvcc.ErrCompacted, 10*Second
		return b
	}},
}

// TestCheckBad checks that each broken promise is detected and attributed to its invariant.
func TestCheckBad(t *testing.T) {
	for _, c := range bad {
		t.Run(c.id+" "+c.name, func(t *testing.T) {
			r := Check(c.make().h, handLimits)
			var got []string
			for _, v := range r.Violations {
				if v.ID == c.id {
					return
				}
				got = append(got, fmt.Sprintf("%s: %s", v.ID, v.What))
			}
			t.Errorf("not found; found %d others:\n%s", len(got), strings.Join(got, "\n"))
		})
	}
}

// TestSearch checks that the search for a linearization, without using the log, rejects a history
// that no order explains.
func TestSearch(t *testing.T) {
	search := func(h *History) *Report {
		f := newFacts(h, handLimits)
		f.replayLog()
		f.matchOps()
		f.report.Violations = nil
		f.checkLinearizable()
		return f.report
	}
	if r := search(good().h); len(r.Violations) != 0 || r.Undecided != 0 {
		t.Errorf("good: %v, undecided %d", r.Violations, r.Undecided)
	}
	for _, c := range bad {
		if c.id != "S1" && c.id != "L3" || strings.Contains(c.name, "in the log") {
			continue
		}
		if r := search(c.make().h); len(r.Violations) == 0 {
			t.Errorf("%s: found nothing", c.name)
		}
	}
}

// TestSearchUnknown checks that the search infers the fate of an unanswered command. Such a command
// may take effect long after its client gave up, or never.
func TestSearchUnknown(t *testing.T) {
	b := good()
	late := b.op(4, opCommand, 500*Millisecond, 700*Millisecond)
	late.Command, late.Outcome = put("z", "late", 0), Unknown
	never := b.op(4, opCommand, 800*Millisecond, 900*Millisecond)
	never.Command, never.Outcome = put("a", "never", 0), Unknown
	b.entry(12*Second, late.Command)
	b.read(4, 13*Second, 13*Second+Millisecond, "a")
	w := b.h.Watches[0]
	b.deliver(13*Second, w, b.h.Log[len(b.h.Log)-1])
	r := Check(b.h, handLimits)
	if len(r.Violations) != 0 || r.Undecided != 0 ||
		r.Seen[seenUnknown] != 1 || r.Seen[seenLost] != 1 {
		t.Errorf("%+v", r)
	}
}
