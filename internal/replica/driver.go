package replica

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// driver drives the Raft library. Its inputs are messages from other members and reports from the
// disk. It adds the entries to save and the messages to send to the output. Committed entries wait
// in the backlog to be applied. The driver validates messages from outside, because the library
// panics on an inconsistent message.
type driver struct {
	id        uint64 // this member's ID
	node      node
	conf      *raftpb.ConfState // as of the last applied entry
	committed uint64            // index of the last entry known to be committed
	last      uint64            // index of the last entry in the log, durable or not
	appending int               // number of appends that are not durable yet
	backlog   backlog
	offered   uint64 // index of the snapshot that the library can accept now; 0 if none
	state     raft.StateType
	elections uint64 // number of elections started by this member
}

// newDriver returns a driver that continues from the contents of the log.
func newDriver(c *Config) (*driver, error) {
	_, conf, err := c.Log.InitialState()
	if err != nil {
		return nil, fmt.Errorf("replica: read the log state: %w", err)
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
		Logger:                    contradictionLogger{c.Logger},
	})
	if err != nil {
		return nil, fmt.Errorf("replica: start raft: %w", err)
	}
	last, err := c.Log.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("replica: find the end of the log: %w", err)
	}
	return &driver{
		id: c.ID, node: node{raw: rn, touched: true}, conf: conf, last: last,
		committed: rn.BasicStatus().HardState.GetCommit(),
	}, nil
}

// step passes another member's message to the library, unless it is inconsistent. The library
// panics on a commit index beyond the end of the log, and on an entry that conflicts with a
// committed one. Such a panic means that the disk lost entries that this member had acknowledged.
// Any other panic is a bug in this program and is raised again.
func (d *driver) step(m *raftpb.Message, now role) (err error) {
	if err := d.vet(m, now); err != nil {
		return err
	}
	defer func() {
		switch said := recover().(type) {
		case nil:
		case contradiction:
			err = fmt.Errorf("%w: %s from %x: %s", ErrImpossible, m.GetType(), m.GetFrom(), said)
		default:
			panic(said) // the stack still shows where the panic began
		}
	}()
	if err := d.node.Step(m); err != nil {
		return fmt.Errorf("replica: step: %w", err)
	}
	return nil
}

// persisted records that an append message is durable.
func (d *driver) persisted(m *raftpb.Message) {
	if len(m.GetEntries()) > 0 {
		d.appending--
	}
}

// respond routes the responses of a message after it has been carried out.
func (d *driver) respond(m *raftpb.Message, out *output) {
	for _, resp := range m.GetResponses() {
		d.route(resp, out)
	}
}

// ready processes everything that the library has ready. It returns this member's new role, the
// entries to append, and the completed confirm rounds.
func (d *driver) ready(
	was role, out *output,
) (now role, entries []*raftpb.Entry, done []raft.ReadState) {
	rd := d.node.Ready()
	now = was
	if rd.HardState != nil {
		now.term, d.committed = rd.HardState.GetTerm(), rd.HardState.GetCommit()
	}
	if rd.SoftState != nil {
		now.leader = rd.SoftState.Lead
		d.state = rd.SoftState.RaftState
		now.leading = d.state == raft.StateLeader
	}
	if now.term > was.term && d.state == raft.StateCandidate {
		d.elections++
	}
	for _, m := range rd.Messages {
		d.route(m, out)
	}
	return now, rd.Entries, rd.ReadStates
}

// route delivers one of the library's messages to its destination.
func (d *driver) route(m *raftpb.Message, out *output) {
	switch m.GetTo() {
	case raft.LocalAppendThread:
		d.append(m, out)
	case raft.LocalApplyThread:
		d.backlog.add(m)
	case d.id:
		if err := d.node.Step(m); err != nil {
			panic(fmt.Sprintf("replica: raft rejected its own %s: %v", m.GetType(), err))
		}
	default:
		msg := &Message{From: d.id, To: m.GetTo(), Version: firstVersion, Raft: m}
		out.Send = append(out.Send, msg)
	}
}

// append adds a message to the output to be saved, and tracks the end of the log. The library can
// accept only a snapshot that it was offered.
func (d *driver) append(m *raftpb.Message, out *output) {
	if s := m.GetSnapshot(); !raft.IsEmptySnap(s) {
		if d.last = s.GetMetadata().GetIndex(); d.last != d.offered {
			panic(fmt.Sprintf("replica: raft accepted a snapshot at index %d that was not streamed",
				d.last))
		}
	}
	if n := len(m.GetEntries()); n > 0 {
		d.last = m.GetEntries()[n-1].GetIndex()
		d.appending++
	}
	out.Append = append(out.Append, m)
}

// next returns the next committed entry, or nil if there is none or this step has no time for it.
// When all entries of a message have been applied, next notifies the library.
func (d *driver) next(out *output) *raftpb.Entry {
	for {
		e, over := d.backlog.next()
		if over == nil {
			return e
		}
		d.respond(over, out)
	}
}

// change applies a committed membership change. It returns an error if the change is impossible.
func (d *driver) change(c *raftpb.ConfChangeV2) error {
	if err := d.checkChange(c); err != nil {
		return err
	}
	d.conf = d.node.ApplyConfChange(c)
	return nil
}

// propose proposes an entry. It fails if the library has no room for the entry, or if this leader
// is handing over leadership.
func (d *driver) propose(data []byte) error {
	if d.node.Propose(data) != nil {
		return ErrOverloaded
	}
	return nil
}

// proposeChange proposes a membership change. The proposal succeeds if the library appends the
// entry.
func (d *driver) proposeChange(c *raftpb.ConfChangeV2) { d.node.ProposeConfChange(c) }

// confirm requests a confirm round from the quorum. Every heartbeat repeats the request until the
// round is done. If there are no heartbeats, askAgain repeats it.
func (d *driver) confirm(id uint64) { d.node.ReadIndex(binary.BigEndian.AppendUint64(nil, id)) }

// stepDown makes this leader step down. It advances Raft's clock until the library finds that no
// majority has answered for an election timeout. Raft's safety does not depend on ticks.
func (d *driver) stepDown(timeout int) {
	for range 2 * timeout {
		if d.node.BasicStatus().RaftState != raft.StateLeader {
			return
		}
		d.node.Tick()
	}
}

// transferring reports whether this leader is handing over leadership, and so accepts no proposals.
func (d *driver) transferring() bool { return d.node.BasicStatus().LeadTransferee != raft.None }
