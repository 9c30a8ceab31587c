package sim

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// hashEvery is the number of entries between two state hashes.
const hashEvery = 32

// oracle observes every entry that a member applies. It checks that all members apply the same log,
// and applies the log to its own state machine.
type oracle struct {
	w                *world
	machine          *fsm.Machine
	raw              []*raftpb.Entry      // by index in History.Log
	changes          []*fsm.Change        // by revision, starting at 2
	events           []fsm.LeaseEvent     // by number, starting at 1
	revision         int64                // the revision after the last command
	lastEvents       []uint64             // the number of the last event, by index in History.Log
	token            lease.Token          // the last issued token
	term             uint64               // the highest term that had a leader
	leader           *process             // the leader of that term
	changed          Time                 // when it became leader
	versionChangedAt Time                 // last change of the cluster version or supported versions
	members          uint64               // index of the last membership change
	orphaned         map[lease.Token]Time // when each remaining orphan lost its lease
}

func (o *oracle) init(w *world, founders []fsm.Member) {
	config := w.machine
	config.LeaseEvents = 0 // keep all events
	o.w, o.machine, o.revision, o.orphaned = w, fsm.New(config), 1, make(map[lease.Token]Time)
	o.machine.Begin(1, 1)
	for _, n := range founders {
		o.machine.AddMember(n)
	}
}

// applied records that a member applied an entry.
func (o *oracle) applied(p *process, e *raftpb.Entry) {
	member := p.m.id
	at := e.GetIndex() - firstIndex
	if at < uint64(len(o.raw)) {
		known := o.raw[at]
		if known != e && (known.GetTerm() != e.GetTerm() || !bytes.Equal(known.GetData(), e.GetData())) {
			o.w.broken("S2", fmt.Sprintf("member %d applied entry %d of term %d, others have one of "+
				"term %d, or with other commands", member, e.GetIndex(), e.GetTerm(), known.GetTerm()))
		}
		return
	}
	if at > uint64(len(o.raw)) {
		panic(fmt.Sprintf("sim: member %d applied %d, of which nobody knows", member, e.GetIndex()))
	}
	o.raw = append(o.raw, e)
	o.w.h.Log = append(o.w.h.Log, o.apply(p, e))
}

func (o *oracle) apply(p *process, e *raftpb.Entry) *Entry {
	out := &Entry{
		Index: e.GetIndex(), Term: e.GetTerm(), At: o.w.now, Taken: o.taken(p), Member: p.m.id,
	}
	o.machine.Lessor().Advance(lease.Instant(o.w.now / Millisecond))
	o.machine.Begin(out.Index, out.Term)
	var list []fsm.Group
	list, out.Version = groups(e)
	for _, g := range list {
		origin := g.Origin
		for _, c := range g.Commands {
			who, asked := asker(c)
			out.Commands, out.Callers = append(out.Commands, asked), append(out.Callers, who)
			out.Origins = append(out.Origins, origin)
			out.Results = append(out.Results, o.command(out, c, asked))
			if origin.Member != 0 {
				origin.Seq++
			}
		}
	}
	o.followOrphans()
	o.compared(out)
	changes := o.machine.TakeChanges()
	for i := range changes {
		o.changes = append(o.changes, &changes[i])
	}
	out.Changes = changes
	var err error
	if out.Events, err = eventsAfter(o.machine.View().LeaseEvents, uint64(len(o.events))); err != nil {
		panic(err)
	}
	o.events = append(o.events, out.Events...)
	o.lastEvents = append(o.lastEvents, uint64(len(o.events)))
	out.Revision = o.machine.View().KV.Revision()
	if out.Index%hashEvery == 0 {
		o.w.hash(0, o.machine)
	}
	return out
}

// taken returns when p took the mail of its current step. If a primary is still in the middle of a
// step whose mail it took earlier, taken returns that time.
func (o *oracle) taken(p *process) Time {
	at := p.step.taken
	for _, m := range o.w.members {
		if q := m.proc; q != nil && q.role.Primary && q.step.within {
			at = min(at, q.step.taken)
		}
	}
	return at
}

// groups decodes an entry. It also returns the version of the encoding.
func groups(e *raftpb.Entry) ([]fsm.Group, byte) {
	data := e.GetData()
	switch e.GetType() {
	case raftpb.EntryConfChangeV2:
		c := &raftpb.ConfChangeV2{}
		if err := proto.Unmarshal(data, c); err != nil {
			panic(err)
		}
		data = c.GetContext()
	case raftpb.EntryConfChange:
		c := &raftpb.ConfChange{}
		if err := proto.Unmarshal(data, c); err != nil {
			panic(err)
		}
		data = c.GetContext()
	}
	if len(data) == 0 {
		return nil, 0
	}
	g, err := fsm.DecodeEntry(data)
	if err != nil {
		panic(fmt.Sprintf("sim: entry %d: %v", e.GetIndex(), err))
	}
	return g, data[0]
}

// endedBy returns the leases that a command may end.
func endedBy(lessor *lease.Lessor, c fsm.Command) (ids []lease.ID) {
	switch c := c.(type) {
	case *fsm.Revoke:
		if c.Name != "" {
			info, _ := lessor.ByName(c.Name)
			return []lease.ID{info.ID}
		}
		return []lease.ID{c.ID}
	case *fsm.Expire:
		for _, d := range c.Leases {
			ids = append(ids, d.ID)
		}
	case *fsm.Txn:
		for _, ops := range [...][]fsm.Op{c.Then, c.Else} {
			for _, op := range ops {
				if op.Revoke != nil {
					ids = append(ids, endedBy(lessor, op.Revoke)...)
				}
			}
		}
	}
	return ids
}

// asker returns the caller of a command and the command itself, unwrapped.
func asker(c fsm.Command) (access.Caller, fsm.Command) {
	if by, ok := c.(*fsm.By); ok {
		return by.Caller, by.Command
	}
	return access.Caller{}, c
}

// command applies a command and records its effects on leases.
func (o *oracle) command(out *Entry, whole, c fsm.Command) fsm.Result {
	lessor, version := o.machine.Lessor(), o.machine.Version()
	last := o.revision
	var before []Ended
	for _, id := range endedBy(lessor, fsm.Inner(c)) {
		if info, ok := lessor.Lookup(id); ok {
			before = append(before, Ended{Info: info, Keys: lessor.Keys(id)})
		}
	}
	result := o.machine.Apply(whole)
	o.revision = max(o.revision, result.Revision)
	if info := granted(&result); info != nil && info.Token > o.token { // not repeated
		o.token = info.Token
		out.Granted = append(out.Granted, *info)
		o.w.tracef("log %d: lease %x (token %d, TTL %d, name %q)", out.Index, info.ID, info.Token,
			info.TTL, info.Name)
	}
	_, expired := c.(*fsm.Expire)
	for _, e := range before {
		now, ok := lessor.Lookup(e.ID)
		e.Gone = !ok || now.Token != e.Token
		if !e.Gone && now.Delayed == e.Delayed {
			o.w.cover["expiry dropped by stamp or token"]++
			continue
		}
		e.Expired = expired
		if e.Gone && len(e.Keys) > 0 {
			last++
			e.Revision = last
		}
		if !e.Gone {
			e.Info, e.Keys = now, nil
			o.w.cover["lock delay"]++
		}
		out.Ended = append(out.Ended, e)
		o.w.tracef("log %d: lease %x ended, expired %v, gone %v, keys %q", out.Index, e.ID, expired,
			e.Gone, e.Keys)
	}
	o.notice(out, c, result)
	if o.machine.Version().Decided != version.Decided {
		o.versioned(version)
	}
	return result
}

// notice counts events of interest in the log.
func (o *oracle) notice(out *Entry, c fsm.Command, result fsm.Result) {
	late := out.Term < o.term
	cover := o.w.cover
	switch c := c.(type) {
	case *fsm.Expire:
		cover["expiry"]++
		if late {
			cover["expiry in flight at a leader change"]++
		}
		if result.Err != nil {
			cover["expiry dropped by term"]++
		}
	case *fsm.Checkpoint:
		if c.Leases[0].Remaining != 0 {
			cover["checkpoint"]++
			return
		}
		cover["checkpointed lease renewed"]++
		o.w.injector.deposeAtApply(out.Member)
		if late {
			cover["clearing entry in flight at a leader change"]++
		}
	case *fsm.SetVersion, *fsm.SetMember:
		o.versionChangedAt = o.w.now
	case *fsm.AddMember, *fsm.RemoveMember, *fsm.PromoteMember:
		o.versionChangedAt = o.w.now
		if result.Err == nil {
			cover[fmt.Sprintf("%T", c)[len("*fsm."):]]++
			o.removed(c)
			o.members = out.Index
		}
		o.w.tracef("log %d: %T %+v: %v", out.Index, c, c, result.Err)
	case *fsm.Compact:
		if result.Err == nil {
			cover["compaction"]++
		}
	default:
		if late {
			cover["command in flight at a leader change"]++
		}
	}
}

// removed counts the removal of a leader.
func (o *oracle) removed(c fsm.Command) {
	r, ok := c.(*fsm.RemoveMember)
	if !ok {
		return
	}
	if p := o.w.members[r.ID-1].proc; p != nil && p.role.Leading {
		o.w.cover["leader removed"]++
	}
}

// overwritten records entries that a disk drops because entries of another leader replace them. The
// dropped entries were never committed.
func (w *world) overwritten(entries []*raftpb.Entry) {
	for _, e := range entries {
		if at := e.GetIndex() - firstIndex; at < uint64(len(w.oracle.raw)) && w.oracle.raw[at] == e {
			continue // repeated with the same content
		}
		list, _ := groups(e)
		for _, g := range list {
			for _, c := range g.Commands {
				switch c := c.(type) {
				case *fsm.Expire:
					w.cover["expiry lost with its leader"]++
				case *fsm.Checkpoint:
					if c.Leases[0].Remaining == 0 {
						w.cover["clearing entry lost with its leader"]++
					} else {
						w.cover["checkpoint lost with its leader"]++
					}
				default:
					w.cover["command lost with its leader"]++
				}
			}
		}
	}
}

// published checks a change that a member passes to its watchers against the log.
func (o *oracle) published(member uint64, c *fsm.Change) {
	at := c.Revision - 2
	if at < 0 || at >= int64(len(o.changes)) {
		o.w.broken("W1", fmt.Sprintf("member %d publishes revision %d, the log has come to %d",
			member, c.Revision, len(o.changes)+1))
		return
	}
	want := o.changes[at]
	same := want.Revision == c.Revision && len(want.Events) == len(c.Events)
	for i := range c.Events {
		same = same && c.Events[i].Delete == want.Events[i].Delete &&
			c.Events[i].KV.Key == want.Events[i].KV.Key &&
			c.Events[i].KV.ModRevision == want.Events[i].KV.ModRevision
	}
	if !same {
		o.w.broken("W1", fmt.Sprintf("member %d publishes other changes of revision %d than the log's",
			member, c.Revision))
	}
}

// lastEvent returns the number of the last lease event after the entry at an index.
func (o *oracle) lastEvent(index uint64) uint64 {
	if index < firstIndex {
		return 0
	}
	return o.lastEvents[index-firstIndex]
}

// publishedEvents checks, against the log (W1), a member's lease events that are numbered above
// last: each appears once and in order. If more events occur at once than a member keeps, only the
// latest are present, and they are not checked.
func (o *oracle) publishedEvents(member, last uint64, all fsm.LeaseEvents) uint64 {
	if all.Last() > last+uint64(o.w.machine.LeaseEvents) {
		o.w.cover["more events of leases than are kept"]++
		return all.Last()
	}
	events, err := eventsAfter(all, last)
	if err != nil {
		o.w.broken("W1", fmt.Sprintf("member %d, after event %d of a lease: %v", member, last, err))
	}
	for i := range events {
		e := &events[i]
		last++
		if e.Seq != last || last > uint64(len(o.events)) || !reflect.DeepEqual(*e, o.events[last-1]) {
			o.w.broken("W1", fmt.Sprintf("member %d publishes event %d of a lease, which is to be %d: %+v",
				member, e.Seq, last, *e))
		}
	}
	return last
}

// followOrphans records when each orphan appeared, and drops those that no longer exist.
func (o *oracle) followOrphans() {
	for _, h := range o.machine.TakeHolds() {
		_, is := o.machine.Orphan(h.Token)
		if _, was := o.orphaned[h.Token]; is && !was {
			o.orphaned[h.Token] = o.w.now
			o.w.cover["orphan"]++
		} else if !is {
			delete(o.orphaned, h.Token)
		}
	}
}

// outlived checks that no orphan outlives its time in a stretch without faults. A new leader, or a
// leader that distrusts its clock, restarts the countdown of orphans.
func (o *oracle) outlived(from Time) {
	w := o.w
	for _, r := range w.h.Roles {
		if r.Promoted || r.Refresh {
			from = max(from, r.At)
		}
	}
	for _, token := range slices.Sorted(maps.Keys(o.orphaned)) {
		orphan, _ := o.machine.Orphan(token)
		ttl := Time(float64(orphan.Lease.TTL) / (1 - w.p.RealDrift) * float64(Millisecond))
		over := max(o.orphaned[token], from) + ttl + w.p.Limits().Lateness
		if over < w.now {
			w.broken("C1", fmt.Sprintf("what lease %x (token %d) held is still an orphan, %v after its time",
				orphan.Lease.ID, token, w.now-over))
		}
	}
}
