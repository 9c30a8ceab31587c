package channel

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// Goal: columns that do not fit end the stream, as other faults of the protocol do, and nothing is
// done. So does a relay that reads no answers.
func TestColumnsFit(t *testing.T) {
	a := &asks{lists: make(chan []Renewal, 1000)}
	member := New(nil, 1<<20, func(*Channel, *pb.RelayCall) func() { return nil })
	for name, r := range map[string]*pb.RelayRenewals{
		"requests": {Channels: []uint64{1}, Ids: []int64{1}, Tokens: []uint64{1}},
		"tokens":   {Channels: []uint64{1}, Requests: []uint64{1}, Ids: []int64{1}},
		"ids": {
			Channels: []uint64{1, 1}, Requests: []uint64{1, 2}, Ids: []int64{1}, Tokens: []uint64{1},
		},
		"more ids": {
			Channels: []uint64{1}, Requests: []uint64{1}, Ids: []int64{1, 2}, Tokens: []uint64{1, 2},
		},
		"counts": {
			Channels: []uint64{1}, Requests: []uint64{1}, Ids: []int64{1}, Tokens: []uint64{1},
			Leases: []uint32{1, 1},
		},
		"a request of no lease": {
			Channels: []uint64{1, 1}, Requests: []uint64{1, 2}, Ids: []int64{1}, Tokens: []uint64{1},
			Leases: []uint32{1, 0},
		},
		"too many": {
			Channels: []uint64{1}, Requests: []uint64{1}, Ids: make([]int64, maxRows+1),
			Tokens: make([]uint64, maxRows+1), Leases: []uint32{maxRows + 1},
		},
		"a huge count": {
			Channels: []uint64{1}, Requests: []uint64{1}, Ids: []int64{1}, Tokens: []uint64{1},
			Leases: []uint32{1<<32 - 1},
		},
	} {
		member.TakeRenewals(a)
		if err := member.take(&Message{Renewals: r}); !errors.Is(err, errProtocol) {
			t.Errorf("%s: %v", name, err)
		}
		member.TakeRenewals(nil)
		if err := member.take(&Message{Renewals: r}); !errors.Is(err, errProtocol) {
			t.Errorf("%s, at a member that takes none: %v", name, err)
		}
	}
	if len(a.lists) != 0 {
		t.Error("columns that do not fit are renewed")
	}
	relay := New(nil, 1<<20, nil)
	for name, r := range map[string]*pb.RelayRenewed{
		"requests":   {Channels: []uint64{1}, TtlMs: []int64{1}},
		"ttls":       {Channels: []uint64{1}, Requests: []uint64{1}},
		"unanswered": {UnansweredChannels: []uint64{1}},
	} {
		if err := relay.take(&Message{Renewed: []*pb.RelayRenewed{r}}); !errors.Is(err, errProtocol) {
			t.Errorf("answer, %s: %v", name, err)
		}
	}
}

// answering returns a member with one channel, and what collects its renewals.
func answering(t *testing.T) (*Link, *asks) {
	t.Helper()
	a := &asks{lists: make(chan []Renewal, 1)}
	member := New(nil, 1<<20, func(*Channel, *pb.RelayCall) func() { return nil })
	member.TakeRenewals(a)
	if err := member.takeFrames([]*pb.RelayFrame{{Channel: 1, Call: &pb.RelayCall{}}}); err != nil {
		t.Fatal(err)
	}
	return member, a
}

// full returns as many renewals as one message may have, of so many leases each.
func full(each int) *pb.RelayRenewals {
	r := &pb.RelayRenewals{}
	for i := range uint64(maxRows / each) {
		r.Channels, r.Requests = append(r.Channels, 1), append(r.Requests, math.MaxInt64-i)
		r.Leases = append(r.Leases, uint32(each))
		for range each {
			r.Ids, r.Tokens = append(r.Ids, 1<<40), append(r.Tokens, 1)
		}
	}
	return r
}

// Goal: a relay that reads nothing cannot fill the memory of a member with answers, however few
// requests its leases are in.
func TestUnreadRenewals(t *testing.T) {
	for _, each := range []int{1, maxRows} {
		member, a := answering(t)
		times := func(reads bool) int {
			for i := range 2 * maxOpen / maxRows {
				if err := member.take(&Message{Renewals: full(each)}); err != nil {
					return i
				}
				a.answers(<-a.lists)
				if reads {
					member.next()
				}
			}
			return -1
		}
		if n := times(true); n >= 0 {
			t.Errorf("%d leases: a relay that reads ends after %d messages", each, n)
		}
		if n := times(false); n != maxOpen/maxRows {
			t.Errorf("%d leases: a relay that does not read ends after %d messages", each, n)
		}
	}
}

// Goal: a message of a member with answers to renewals has less than 64 KiB, however many wait and
// whatever else is to be sent, so that it waits for nobody; and all come.
func TestSizeOfAnswers(t *testing.T) {
	member, a := answering(t)
	const messages, pieces = 50, window / pieceSize
	for i := range messages {
		if err := member.take(&Message{Renewals: full(1)}); err != nil {
			t.Fatal(err)
		}
		part := []int{manyRows - 1, maxRows, 1}[i%3]
		for list := <-a.lists; len(list) > 0; {
			n := min(part, len(list))
			a.answers(list[:n])
			list = list[n:]
		}
	}
	send(t, member.channels[1], make([]byte, window))
	answered, frames := 0, 0
	for {
		m, _, _ := member.next()
		if m.isEmpty() {
			break
		}
		size := proto.Size(&pb.RelayResponse{Frames: m.Frames, Renewed: m.Renewed})
		if size >= 64<<10 {
			t.Errorf("a message has %d bytes", size)
		}
		frames += len(m.Frames)
		for _, r := range m.Renewed {
			answered += len(r.Requests)
		}
	}
	if answered != messages*maxRows || frames != pieces {
		t.Errorf("%d answers and %d frames", answered, frames)
	}
}

// Goal: a renewal that would fill a message does not wait for others, or later ones had no room.
func TestManyRenewalsGoAtOnce(t *testing.T) {
	renewing(t, func(t *testing.T, relay *Link, calls <-chan served, a *asks) {
		var all []*Channel
		for i := range manyRows {
			all = append(all, open(t, relay, fmt.Sprint(i)))
			<-calls
		}
		synctest.Wait()
		for request, want := range []time.Duration{0, maxLinger, 0} {
			began := time.Now()
			some := all[:len(all)-request%2]
			for _, c := range some {
				renew(t, c, uint64(request), 100)
			}
			n := 0
			for n < len(some) {
				list := <-a.lists
				n += len(list)
				a.answers(list)
			}
			if took := time.Since(began); took != want {
				t.Errorf("%d renewals take %v, not %v", len(some), took, want)
			}
			for _, c := range some {
				hears(t, c, uint64(request), 100_000)
			}
		}
	})
}
