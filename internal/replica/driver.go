package replica

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// driver drives the Raft library: what other members and this one's disk say goes in, what is to be
// saved and sent goes to the output, and what is committed waits in the backlog to be applied. It
// vets what comes from outside, since the library panics where a message makes no sense.
type driver struct {
	m         *local
	node      node
	conf      *raftpb.ConfState // as of the last applied entry
	committed uint64            // index of the last entry that is known to be
	last      uint64            // index of the log's last entry, durable or not
	appending int               // appends of entries that are not yet durable
	backlog   backlog
	offered   uint64 // index of the snapshot that the library may take now; 0 for none
	state     raft.StateType
	elections uint64 // that this member has begun
}

// newDriver returns a driver that goes on from what the log holds.
func newDriver(m *local) (*driver, error) {
	c := &m.cfg
	_, conf, err := c.Log.InitialState()
	if err != nil {
		return nil, fmt.Errorf("replica: read the log's state: %w", err)
	}
	rn, err := raft.NewRawNode(&raft.Config{
		ID:                        c.ID,
		ElectionTick:              c.ElectionTicks,
		HeartbeatTick:             c.HeartbeatTicks,
		Storage:                   c.Log,
		Applied:                   c.Machine.Index(),
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             1 << 20,
		MaxCommittedSizePerReady:  4 << 20,
		MaxUncommittedEntriesSize: cmp.Or(c.MaxUncommitted, maxUncommitted),
		MaxInflightMsgs:           256,
		MaxInflightBytes:          maxInflightBytes,
		CheckQuorum:               true,
		PreVote:                   !c.NoPreVote,
		ReadOnlyOption:            raft.ReadOnlySafe,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    discerning{c.Logger},
	})
	if err != nil {
		return nil, fmt.Errorf("replica: start raft: %w", err)
	}
	last, err := c.Log.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("replica: find the log's end: %w", err)
	}
	return &driver{
		m: m, node: node{raw: rn, touched: true}, conf: conf, last: last,
		committed: rn.BasicStatus().HardState.GetCommit(),
	}, nil
}

// step gives the library a message of another member, unless it makes no sense. A commit beyond
// the log's end, or another entry in the place of a committed one, makes the library panic. For
// a member whose disk has forgotten what it acknowledged that is the news that it has. Any other
// panic is a fault of this program and goes on.
func (d *driver) step(m *raftpb.Message) (err error) {
	if err := d.vet(m); err != nil {
		return err
	}
	defer func() {
		switch said := recover().(type) {
		case nil:
		case contradiction:
			err = fmt.Errorf("%w: %s from %x: %s", ErrImpossible, m.GetType(), m.GetFrom(), said)
		default:
			panic(said) // the stack still shows where it began
		}
	}()
	if err := d.node.Step(m); err != nil {
		return fmt.Errorf("replica: step: %w", err)
	}
	return nil
}

// persisted says that an append message is durable.
func (d *driver) persisted(m *raftpb.Message) {
	if len(m.GetEntries()) > 0 {
		d.appending--
	}
}

// respond gives the library, and other members, the responses of a message that was carried out.
func (d *driver) respond(m *raftpb.Message) {
	for _, resp := range m.GetResponses() {
		d.route(resp)
	}
}

// ready takes what the library has ready, and returns the role that this member plays now, the
// entries that are to be appended, and the confirm rounds that are done.
func (d *driver) ready() (now role, entries []*raftpb.Entry, done []raft.ReadState) {
	rd := d.node.Ready()
	now = d.m.role
	if rd.HardState != nil {
		now.term, d.committed = rd.HardState.GetTerm(), rd.HardState.GetCommit()
	}
	if rd.SoftState != nil {
		now.leader = rd.SoftState.Lead
		d.state = rd.SoftState.RaftState
		now.leading = d.state == raft.StateLeader
	}
	if now.term > d.m.term && d.state == raft.StateCandidate {
		d.elections++
	}
	for _, m := range rd.Messages {
		d.route(m)
	}
	return now, rd.Entries, rd.ReadStates
}

// route carries one of the library's messages to where it belongs.
func (d *driver) route(m *raftpb.Message) {
	switch m.GetTo() {
	case raft.LocalAppendThread:
		d.append(m)
	case raft.LocalApplyThread:
		d.backlog.add(m)
	case d.m.cfg.ID:
		if err := d.node.Step(m); err != nil {
			panic(fmt.Sprintf("replica: raft refused its own %s: %v", m.GetType(), err))
		}
	default:
		d.m.send(&Message{To: m.GetTo(), Raft: m})
	}
}

// append has a message saved, and learns where the log ends. The library takes no snapshot that it
// was not given.
func (d *driver) append(m *raftpb.Message) {
	if s := m.GetSnapshot(); !raft.IsEmptySnap(s) {
		if d.last = s.GetMetadata().GetIndex(); d.last != d.offered {
			panic(fmt.Sprintf("replica: raft took a snapshot at %d that nobody streamed", d.last))
		}
	}
	if n := len(m.GetEntries()); n > 0 {
		d.last = m.GetEntries()[n-1].GetIndex()
		d.appending++
	}
	d.m.out.Append = append(d.m.out.Append, m)
}

// next returns the next committed entry, if there is one and this step has time for it. Once the
// last entry of a message has been applied, the library is told.
func (d *driver) next() *raftpb.Entry {
	for {
		e, over := d.backlog.next()
		if over == nil {
			return e
		}
		d.respond(over)
	}
}

// change tells the library of a committed change of the membership, unless it cannot be.
func (d *driver) change(c *raftpb.ConfChangeV2) error {
	if err := d.possible(c); err != nil {
		return err
	}
	d.conf = d.node.ApplyConfChange(c)
	return nil
}

// propose proposes an entry, or reports that the library has no room for it. It takes none either
// while this leader hands over.
func (d *driver) propose(data []byte) error {
	if d.node.Propose(data) != nil {
		return ErrOverloaded
	}
	return nil
}

// proposeChange is propose for a change of the membership. Whether the library took it is seen by
// the entry that it appends, or does not.
func (d *driver) proposeChange(c *raftpb.ConfChangeV2) { d.node.ProposeConfChange(c) }

// confirm asks the quorum for a confirm round. Until that is done each heartbeat asks for it again:
// see askAgain for when there is none.
func (d *driver) confirm(id uint64) { d.node.ReadIndex(binary.BigEndian.AppendUint64(nil, id)) }

// stepDown lets Raft's clock of this leader run ahead, until that finds that no majority has
// answered for an election timeout. Ticks are no part of what Raft's safety rests on.
func (d *driver) stepDown() {
	for range 2 * d.m.cfg.ElectionTicks {
		if d.node.BasicStatus().RaftState != raft.StateLeader {
			return
		}
		d.node.Tick()
	}
}

// transferring reports whether this member leads and is handing over, and so takes nothing in.
func (d *driver) transferring() bool { return d.node.BasicStatus().LeadTransferee != raft.None }
