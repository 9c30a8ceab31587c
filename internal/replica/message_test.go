package replica

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/holder"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// keys returns ranges: all but the last are single keys, and the last one extends to the end of the
// key space.
func keys(list ...string) (out []keyrange.Range) {
	for _, k := range list {
		out = append(out, keyrange.Range{Key: k})
	}
	out[len(out)-1].End = "\x00"
	return out
}

// messages returns every type of message, with all fields set and with none set.
func messages() []*Message {
	return []*Message{
		{Version: 1, From: 1, To: 2, Raft: &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), From: new(uint64(1)), To: new(uint64(2)),
			Term: new(uint64(7)), Entries: []*raftpb.Entry{{Data: []byte("x")}},
		}},
		{Version: 1, From: 1, To: 2, Forward: &Forward{
			Term: 1, First: 1 << 62, Base: 3, Round: 4,
			Commands: []fsm.Command{
				&fsm.Put{Key: "k", Value: []byte("v"), Lease: 7},
				&fsm.Grant{Terms: lease.Terms{ID: -1, TTL: 1000}},
				&fsm.Expire{Term: 2, Leases: []lease.Due{{ID: 5, Token: 6}}},
			},
			Renewals: []Ask{{Seq: 1, ID: -9}, {Seq: 1 << 63, ID: 9, Token: 1 << 63}},
			Queries:  []lease.ID{1, -2, 1 << 62},
		}},
		{Version: 1, From: 1, To: 2, Forward: &Forward{
			Renewals: []Ask{{Seq: 1, ID: -9}},
		}},
		{Version: 1, From: 1, To: 2, Forward: &Forward{
			Term: 1, First: 2, Base: 3, Round: 4,
			Commands: []fsm.Command{&fsm.Put{Key: "k"}}, Renewals: []Ask{{Seq: 1, ID: 9, Token: 3}},
			Acks: []NumberedAck{{1 << 60, AckCache{
				ID: 1, Token: 1 << 63, Term: 3, Seq: 4, Open: 5, Dropped: keys("a", "b"),
			}}, {}},
			Fills: []Fill{{ID: 1 << 62, Token: 2, Ranges: keys("a")}, {}},
			Opens: []NumberedOpen{{Number: 1, ID: 2, Token: 3, Has: keys("c", "", "e")}, {}},
		}},
		{Version: 1, From: 1, To: 2, Forward: &Forward{
			Term: 1, Round: 4, Renewals: []Ask{{Seq: 1, ID: 9, Token: 3}},
			Access: 1 << 63, Groups: holder.Round{
				Number: math.MaxUint64, Fresh: true,
				Leave: []holder.Leaving{{ID: -1, Group: 1 << 63, AsOf: lease.LastRenewal}, {}},
				Renew: []lease.GroupID{1 << 63, 0},
			},
			Fills: []Fill{{ID: 1 << 62, Token: 2, Ranges: keys("a")}},
		}},
		{Version: 1, From: 1, To: 2, Forward: &Forward{
			Groups: holder.Round{Number: 1, Renew: []lease.GroupID{7}},
		}},
		{Version: 1, From: 1, To: 2, Reply: &Reply{
			Term: 1, Renewed: []Renewed{{Seq: 9}}, Filled: []bool{true},
			GroupRound: 1 << 63, Groups: []holder.RenewedGroup{
				{ID: 1 << 63, TTL: math.MaxInt64, At: lease.LastRenewal, Left: []lease.ID{-1, 2}}, {ID: 1},
			},
		}},
		{Version: 1, From: 1, To: 2, Reply: &Reply{
			Term: 1, Next: 2, Round: 3, Index: 4,
			Refused: []Refusal{{Seq: 8, Code: codeOf(ErrOverloaded)}},
			Left:    []Left{{TTL: 5, Found: true}, {}},
			Renewed: []Renewed{{Seq: 9, TTL: -1, Code: codeOf(lease.ErrNotFound)}, {Seq: 10, TTL: 60, Group: 1 << 63}},
		}},
		{Version: 1, From: 1, To: 2, Reply: &Reply{
			Term: 1, Renewed: []Renewed{{Seq: 9}},
			Filled: []bool{true, false}, Opened: []Opened{{1 << 62, codeOf(lease.ErrNotFound)}, {}},
			Invalidations: []Invalidation{
				{ID: 1, Token: 2, Term: 3, Seq: 1 << 61, Drop: keys("a", "b")}, {},
			},
			AboutSlow: true, Slow: []SlowNotice{{ID: -1, Token: 1 << 63, Waited: 1000}, {}},
		}},
		{Version: 1, From: 1, To: 2, Reply: &Reply{Term: 1, AboutSlow: true}},
		{Version: 1, From: 1, To: 2, Reply: &Reply{}},
		{Version: 1, From: 1, To: 2, Forward: &Forward{
			First: 4, Commands: []fsm.Command{&fsm.Put{Key: "k"}, &fsm.Put{Key: "l"}},
			Traces: []TracedCommand{{5, Trace{[16]byte{1, 14: 2, 3}, [8]byte{4, 7: 5}}}},
		}},
	}
}

// TestMessageRoundTrip checks that DecodeMessage decodes what AppendTo encoded, and keeps no
// reference to the bytes. A truncated message is rejected, and so is one with trailing bytes.
func TestMessageRoundTrip(t *testing.T) {
	for _, m := range messages() {
		data := m.AppendTo([]byte("before"))[len("before"):]
		if n := len(data); n > m.Size() {
			t.Errorf("%s: %d bytes, Size returns %d", kind(m), n, m.Size())
		}
		copied := bytes.Clone(data)
		got, err := DecodeMessage(1, 2, copied)
		if err != nil {
			t.Fatal(err)
		}
		clear(copied)
		if again := got.AppendTo(nil); !bytes.Equal(again, data) {
			t.Errorf("%s: %x became %x", kind(m), data, again)
		}
		// a protobuf message does not mark its end; the transport's frame has a checksum
		if m.Raft != nil {
			continue
		}
		for n := range data {
			if _, err := DecodeMessage(1, 2, data[:n]); err == nil {
				t.Errorf("%s: the first %d of %d bytes decode as a message", kind(m), n, len(data))
			}
		}
		if _, err := DecodeMessage(1, 2, append(data, 0)); err == nil {
			t.Errorf("%s: bytes after its end are accepted", kind(m))
		}
	}
}

// TestMessageRefused checks that a message with a forged sender or an unknown type is rejected.
func TestMessageRefused(t *testing.T) {
	raw := messages()[0].AppendTo(nil)
	for _, c := range []struct {
		from, to uint64
		data     []byte
	}{{3, 2, raw}, {1, 3, raw}, {1, 2, nil}, {1, 2, []byte{0, 1}}, {1, 2, []byte{1}}} {
		if _, err := DecodeMessage(c.from, c.to, c.data); !errors.Is(err, ErrMessage) {
			t.Errorf("from %d to %d, %x: %v", c.from, c.to, c.data, err)
		}
	}
	newer := fsm.AppendEntry(nil, 1)
	newer[0] = messageFormat.Version + 1
	forward := []byte{1, wireForward, forwardCommands, 1, 2, 3, 4}
	for _, data := range [][]byte{
		{messageFormat.Version + 1, 1},
		{1, 99},
		append(forward, newer...),
		append(fsm.AppendEntry(forward, 1), 0xff),
	} {
		if _, err := DecodeMessage(1, 2, data); !errors.Is(err, encoding.ErrNewer) {
			t.Errorf("%x: %v", data, err)
		}
	}
}

// TestGroupsRefused checks that a round of groups without a number is rejected. No member sends
// such a round.
func TestGroupsRefused(t *testing.T) {
	for _, data := range [][]byte{
		{1, wireForward, forwardGroups, 0, 0, 0, 0, 1, 0, 0, 0, 0},
		{1, wireReply, replyGroups, 0, 0, 0, 0, 0, 0},
	} {
		if m, err := DecodeMessage(1, 2, data); !errors.Is(err, ErrMessage) {
			t.Errorf("%+v, %v", m, err)
		}
	}
}

// TestCodes checks that every error that a leader can return to another member arrives unchanged.
// An error without a code arrives as an unknown outcome. An unknown code arrives as an error from a
// newer release.
func TestCodes(t *testing.T) {
	for i, err := range codes {
		if c := codeOf(err); int(c) != i || !errors.Is(c.err(), err) {
			t.Errorf("%v became %d, and that %v", err, c, c.err())
		}
	}
	if c := codeOf(errors.New("new")); !errors.Is(c.err(), ErrLeaderChanged) {
		t.Errorf("an error without a code became %v", c.err())
	}
	m := &Message{Version: 1, Reply: &Reply{Refused: []Refusal{{Code: Code(len(codes))}}}}
	if _, err := DecodeMessage(1, 2, m.AppendTo(nil)); !errors.Is(err, encoding.ErrNewer) {
		t.Errorf("a code of a newer release: %v", err)
	}
}

// FuzzDecodeMessage checks that bytes from the network cause no panic and no disproportionate
// allocation, and that accepted messages survive a round trip.
func FuzzDecodeMessage(f *testing.F) {
	for _, m := range messages() {
		f.Add(m.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := DecodeMessage(1, 2, data)
		if err != nil || m.Raft != nil {
			return
		}
		again, err := DecodeMessage(1, 2, m.AppendTo(nil))
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}
