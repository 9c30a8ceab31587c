package sim

import (
	"bytes"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// hashEvery is how many entries lie between two indexes at which states are hashed.
const hashEvery = 32

// oracle sees every entry that any member applies, once: it holds the members to
// one log, and applies it to a state machine of its own.
type oracle struct {
	w       *world
	machine *fsm.Machine
	raw     []*raftpb.Entry // by place in History.Log
	changes []*fsm.Change   // by revision, from 2 on
	token   lease.Token     // the last that was given out
	term    uint64          // the highest in which anybody has led
	changed Time            // when it began
	members uint64          // the index of the last change of the membership
}

func (o *oracle) init(w *world, founders []fsm.Member) {
	o.w, o.machine = w, fsm.New(w.machine)
	o.machine.Begin(1, 1)
	for _, n := range founders {
		o.machine.AddMember(n)
	}
}

// applied notes that a member has applied an entry.
func (o *oracle) applied(member uint64, e *raftpb.Entry) {
	at := e.GetIndex() - FirstIndex
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
	o.w.h.Log = append(o.w.h.Log, o.apply(member, e))
}

func (o *oracle) apply(member uint64, e *raftpb.Entry) *Entry {
	out := &Entry{Index: e.GetIndex(), Term: e.GetTerm(), At: o.w.now, Member: member}
	o.machine.Lessor().Advance(lease.Instant(o.w.now / Millisecond))
	o.machine.Begin(out.Index, out.Term)
	for _, g := range groups(e) {
		origin := g.Origin
		for _, c := range g.Commands {
			out.Commands = append(out.Commands, c)
			out.Origins = append(out.Origins, origin)
			out.Results = append(out.Results, o.command(out, c))
			if origin.Member != 0 {
				origin.Seq++
			}
		}
	}
	changes := o.machine.TakeChanges()
	for i := range changes {
		o.changes = append(o.changes, &changes[i])
	}
	out.Changes = changes
	out.Revision = o.machine.View().KV.Revision()
	if out.Index%hashEvery == 0 {
		o.w.hash(0, o.machine)
	}
	return out
}

// groups decodes an entry.
func groups(e *raftpb.Entry) []fsm.Group {
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
		return nil
	}
	g, err := fsm.DecodeEntry(data)
	if err != nil {
		panic(fmt.Sprintf("sim: entry %d: %v", e.GetIndex(), err))
	}
	return g
}

// command applies one command and notes what it did to leases.
func (o *oracle) command(out *Entry, c fsm.Command) fsm.Result {
	var doomed []lease.ID
	switch c := c.(type) {
	case *fsm.Revoke:
		doomed = []lease.ID{c.ID}
	case *fsm.Expire:
		for _, d := range c.Leases {
			doomed = append(doomed, d.ID)
		}
	}
	last := o.machine.View().KV.Revision()
	before := make([]Ended, 0, len(doomed))
	for _, id := range doomed {
		if info, ok := o.machine.Lessor().Lookup(id); ok {
			before = append(before, Ended{Info: info, Keys: o.machine.Lessor().Keys(id)})
		}
	}
	result := o.machine.Apply(c)
	if info, ok := result.Value.(*lease.Info); ok && info.Token > o.token { // not a repeated one
		o.token = info.Token
		out.Granted = append(out.Granted, *info)
		o.w.tracef("log %d: lease %x (token %d, TTL %d, name %q)", out.Index, info.ID, info.Token,
			info.TTL, info.Name)
	}
	_, expired := c.(*fsm.Expire)
	for _, e := range before {
		if _, ok := o.machine.Lessor().Lookup(e.ID); ok {
			o.w.cover["expiry dropped by stamp or token"]++
			continue
		}
		e.Expired = expired
		if len(e.Keys) > 0 {
			last++
			e.Revision = last
		}
		out.Ended = append(out.Ended, e)
		o.w.tracef("log %d: lease %x ended, expired %v, keys %q", out.Index, e.ID, expired, e.Keys)
	}
	o.notice(out, c, result)
	return result
}

// notice counts what is of interest in the log.
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
		o.w.nemesis.ambush(out.Member)
		if late {
			cover["clearing entry in flight at a leader change"]++
		}
	case *fsm.AddMember, *fsm.RemoveMember, *fsm.PromoteMember:
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

// removed counts the removal of a member that leads.
func (o *oracle) removed(c fsm.Command) {
	r, ok := c.(*fsm.RemoveMember)
	if !ok {
		return
	}
	if p := o.w.members[r.ID-1].proc; p != nil && p.role.Leading {
		o.w.cover["leader removed"]++
	}
}

// overwritten notes entries that a disk drops because another leader's take their
// place: they were never committed.
func (w *world) overwritten(entries []*raftpb.Entry) {
	for _, e := range entries {
		if at := e.GetIndex() - FirstIndex; at < uint64(len(w.oracle.raw)) && w.oracle.raw[at] == e {
			continue // repeated, and not replaced
		}
		for _, g := range groups(e) {
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

// published compares the changes that a member shows to its watchers with those of
// the log.
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
