package relay

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/channel"
	"leasehold.dev/internal/holder"
	"leasehold.dev/lease"
)

// kept is the relay's end of a link. The test plays the member.
type kept struct {
	*testing.T
	*keeping
	sent   chan []*pb.RelayFrame
	frames []*pb.RelayFrame // received but not consumed yet
	come   chan []*pb.RelayFrame
}

// keeps runs f with a new kept, in virtual time.
func keeps(t *testing.T, f func(k *kept)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		k := &kept{
			T: t, keeping: newKeeping(),
			sent: make(chan []*pb.RelayFrame, 100), come: make(chan []*pb.RelayFrame, 100),
		}
		l := channel.New(pipe{k.sent, k.come, end}, 1<<20, nil)
		k.over(l)
		go func() { _ = l.Run(t.Context()) }() // ends with the stream
		f(k)
		k.close()
		close(end)
	})
}

// client opens a client's stream. It then reports that lease 1, with a TTL of 10 s, has joined
// group 5 after the given number of answered rounds.
func (k *kept) client(token, rounds uint64) *channel.Channel {
	return k.clientOf(10_000, token, rounds)
}

// clientOf is like client with another TTL, in milliseconds.
func (k *kept) clientOf(ttl int64, token, rounds uint64) *channel.Channel {
	k.Helper()
	c, err := k.link.Open(&pb.RelayCall{})
	if err != nil {
		k.Fatal(err)
	}
	k.begin(c, func(int) {})
	k.come <- []*pb.RelayFrame{{Channel: k.next().Channel, Joined: &pb.RelayJoined{
		AnsweredRounds: rounds,
		Ids:            []int64{1}, Tokens: []uint64{token}, Groups: []uint64{5}, TtlMs: []int64{ttl},
	}}}
	synctest.Wait()
	return c
}

// next returns the relay's next frame, or nil if there is none within a minute.
func (k *kept) next() *pb.RelayFrame {
	for len(k.frames) == 0 {
		select {
		case k.frames = <-k.sent:
		case <-time.After(time.Minute):
			return nil
		}
	}
	f := k.frames[0]
	k.frames = k.frames[1:]
	return f
}

// asks sends a renewal of lease 1 and reports whether it is waiting for a round.
func (k *kept) asks(c *channel.Channel, token uint64) bool {
	b, err := proto.Marshal(renewalOf(7, &pb.RenewRequest{Ids: []int64{1}, Tokens: []uint64{token}}))
	if err != nil {
		k.Fatal(err)
	}
	return k.renew(c, b)
}

func (k *kept) outcome(number uint64, groups ...*pb.RelayGroup) {
	k.come <- []*pb.RelayFrame{{Outcome: &pb.RelayRoundOutcome{Number: number, Groups: groups}}}
	synctest.Wait()
}

// TestPauseBetweenRounds checks that rounds are a twentieth of the TTL apart, no matter how often
// clients renew.
func TestPauseBetweenRounds(t *testing.T) {
	keeps(t, func(k *kept) {
		c := k.client(9, 0)
		for i, want := range []time.Duration{100, 500, 500} {
			began := time.Now()
			if !k.asks(c, 9) {
				t.Fatal("the renewal does not wait")
			}
			k.next()
			if took := time.Since(began); took != want*time.Millisecond {
				t.Errorf("round %d comes after %v", i+1, took)
			}
			k.outcome(uint64(i+1), &pb.RelayGroup{Id: 5, TtlMs: 10_000, AtMs: 77})
		}
	})
}

// TestRoundTime checks that a round times out after two seconds, or after half of the TTL if that
// is shorter.
func TestRoundTime(t *testing.T) {
	for ttl, want := range map[int64]time.Duration{
		10_000: 2 * time.Second, 1_000: 500 * time.Millisecond,
	} {
		keeps(t, func(k *kept) {
			c := k.clientOf(ttl, 9, 0)
			if !k.asks(c, 9) || k.next().GetRound() == nil {
				k.Fatal("no round")
			}
			began := time.Now()
			if f := k.next(); f.GetChannel() == 0 || time.Since(began) != want {
				k.Errorf("TTL %d ms: %v after %v, want the renewal on its client's stream after %v",
					ttl, f, time.Since(began), want)
			}
		})
	}
}

// TestConfirmed checks that a round that renews a group confirms that the member can reach a
// leader. The confirmation ends if a later round waits too long for its outcome.
func TestConfirmed(t *testing.T) {
	keeps(t, func(k *kept) {
		c := k.client(9, 0)
		confirmed := func(want bool, when string) {
			if k.Helper(); k.confirmed(2*time.Second) != want {
				k.Errorf("%s: confirmed is %v", when, !want)
			}
		}
		confirmed(false, "before the first round")
		k.asks(c, 9)
		k.next()
		k.outcome(1, &pb.RelayGroup{Id: 5, TtlMs: 10_000, AtMs: 77})
		confirmed(true, "after a round")
		k.asks(c, 9)
		k.next() // half a second later
		confirmed(true, "while a round waits")
		<-time.After(999 * time.Millisecond)
		confirmed(true, "while a round waits a little longer")
		<-time.After(time.Millisecond)
		confirmed(false, "when it has waited for a second")
		k.outcome(2, &pb.RelayGroup{Id: 5})
		confirmed(true, "1.5s after the round that renewed a group")
		<-time.After(500 * time.Millisecond)
		confirmed(false, "2s after it, and after a round that renewed nothing")
	})
}

// TestKeeping checks that a renewal waits for a hundredth of the TTL and is answered by the outcome
// of the next round. This applies only to a client whose renewal the member has already checked,
// and only with the same token.
func TestKeeping(t *testing.T) {
	keeps(t, func(k *kept) {
		c := k.client(9, 0)
		other, err := k.link.Open(&pb.RelayCall{})
		if err != nil {
			t.Fatal(err)
		}
		k.begin(other, func(int) {})
		k.next()
		if k.asks(other, 9) || k.asks(c, 8) {
			t.Error("a renewal that the member has not checked waits")
		}
		began := time.Now()
		if !k.asks(c, 9) {
			t.Fatal("the renewal does not wait")
		}
		r := k.next().GetRound()
		if took := time.Since(began); took != 100*time.Millisecond || r.GetNumber() != 1 ||
			!slices.Equal(r.Groups, []uint64{5}) {
			t.Errorf("after %v the relay sent %v", took, r)
		}
		if c.Behind() != 0 || k.confirmed(time.Hour) {
			t.Error("answered before the outcome")
		}
		k.outcome(1, &pb.RelayGroup{Id: 5, TtlMs: 10_000, AtMs: 77})
		b, err := c.Recv(t.Context())
		m := new(pb.ServerMessage)
		if err != nil || proto.Unmarshal(b, m) != nil || m.Responses[0].Id != 7 ||
			!slices.Equal(m.Responses[0].GetRenew().GetTtlMs(), []int64{10_000}) {
			t.Errorf("the client received %v, %v", m, err)
		}
		// From here on, the client is silent.
		began = time.Now().Add(-100 * time.Millisecond)
		r = k.next().GetRound()
		if took := time.Since(began); took != 4*time.Second || len(r.GetGroups()) != 0 ||
			!slices.Equal(r.GetLeave(), []int64{1}) || !slices.Equal(r.LeaveAsOf, []int64{77}) {
			t.Errorf("%v after the last renewal, the relay sent %v", took, r)
		}
		if k.confirmed(3900*time.Millisecond) || !k.confirmed(3901*time.Millisecond) {
			t.Error("the last round was not confirmed 3.9s ago")
		}
	})
}

// TestKeepingFails checks that a renewal goes to the member over the client's stream if its lease
// has left its group, if the round's outcome does not renew the group, or if the outcome is late.
// Only a late outcome ends all groups.
func TestKeepingFails(t *testing.T) {
	for name, answer := range map[string]func(k *kept){
		"left": func(k *kept) {
			k.outcome(1, &pb.RelayGroup{Id: 5, TtlMs: 10_000, Left: []int64{1}})
		},
		"over":     func(k *kept) { k.outcome(1, &pb.RelayGroup{Id: 5}) },
		"not sent": func(k *kept) { k.outcome(1) },
		"late":     func(*kept) {},
	} {
		keeps(t, func(k *kept) {
			c := k.client(9, 0)
			if !k.asks(c, 9) || k.next().GetRound().GetNumber() != 1 {
				t.Fatal("no round")
			}
			k.closeSend(c)
			answer(k)
			rounds, frames := uint64(1), 2
			if name == "left" {
				frames = 3 // one more round, in which the lease leaves in case it joined again
			}
			var own []*pb.RelayFrame // frames on the client's stream
			for range frames {
				f := k.next()
				if r := f.GetRound(); r != nil {
					rounds = r.Number
					k.outcome(rounds)
					continue
				}
				own = append(own, f)
			}
			if len(own) != 2 || own[0].GetChannel() == 0 || len(own[0].GetData()) == 0 ||
				!own[1].GetHalfClose() || c.Behind() != 0 {
				t.Errorf("%s: the relay sent %v, and the client has %d responses", name, own, c.Behind())
			}
			k.outcome(1, &pb.RelayGroup{Id: 5, TtlMs: 10_000})
			if next := k.client(9, rounds); c.Behind() != 0 || !k.asks(next, 9) {
				t.Errorf("%s: a renewal does not wait after another join", name)
			}
			if r := k.next().GetRound(); r.GetNumber() != rounds+1 || r.ResetGroups != (name == "late") {
				t.Errorf("%s: next round: %v", name, r)
			}
		})
	}
}

// TestWaitingRenewalsAreCounted checks that the memory used by renewals waiting for a round is
// charged to the client until they are answered or forwarded, or the client's stream ends.
func TestWaitingRenewalsAreCounted(t *testing.T) {
	for _, end := range []string{"answered", "failed", "ended"} {
		t.Run(end, func(t *testing.T) {
			keeps(t, func(k *kept) {
				c := k.client(9, 0)
				var bytes int
				stop := k.begin(c, func(n int) { bytes += n })
				k.come <- []*pb.RelayFrame{{Channel: 1, Joined: &pb.RelayJoined{
					Ids: []int64{1}, Tokens: []uint64{9}, Groups: []uint64{5}, TtlMs: []int64{10_000},
				}}}
				synctest.Wait()
				b, err := proto.Marshal(renewalOf(7, &pb.RenewRequest{Ids: slices.Repeat([]int64{1}, 100)}))
				if err != nil {
					t.Fatal(err)
				}
				if !k.renew(c, b) || bytes < len(b) {
					t.Fatalf("%d bytes are counted for a renewal of %d", bytes, len(b))
				}
				k.next()
				switch end {
				case "answered":
					k.outcome(1, &pb.RelayGroup{Id: 5, TtlMs: 10_000, AtMs: 77})
				case "failed":
					k.outcome(1)
				case "ended":
					stop()
				}
				synctest.Wait()
				if bytes != 0 {
					t.Errorf("%d bytes are left", bytes)
				}
			})
		})
	}
}

// TestAnswersAreBounded checks that a client that renews one lease many times per message, without
// reading, uses no more of the relay's memory than other clients.
func TestAnswersAreBounded(t *testing.T) {
	keeps(t, func(k *kept) {
		c := k.client(9, 0)
		b, err := proto.Marshal(renewalOf(7, &pb.RenewRequest{Ids: slices.Repeat([]int64{1}, 7000)}))
		if err != nil {
			t.Fatal(err)
		}
		number := uint64(0)
		for number < maxAnswers && k.renew(c, b) {
			number++
			k.next()
			k.outcome(number, &pb.RelayGroup{Id: 5, TtlMs: 10_000, AtMs: 77})
		}
		bytes := 0
		for range c.Behind() {
			m, err := c.Recv(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			bytes += len(m)
		}
		if bytes == 0 || bytes > 2*maxWaiting {
			t.Errorf("%d responses of %d bytes are waiting", number, bytes)
		}
		if !k.renew(c, b) {
			t.Error("a renewal does not wait for a round after the responses were read")
		}
	})
}

// TestFailedRenewalsBeforeTheEnd checks that all renewals of a client that half-closes its stream
// reach the member before the half-close. Otherwise they would get no response.
func TestFailedRenewalsBeforeTheEnd(t *testing.T) {
	keeps(t, func(k *kept) {
		c := k.client(9, 0)
		const renewals = 20
		for range renewals {
			if !k.asks(c, 9) {
				t.Fatal("a renewal does not wait")
			}
		}
		k.next()
		k.closeSend(c)
		k.outcome(1)
		for n := range renewals {
			if f := k.next(); len(f.GetData()) == 0 {
				t.Fatalf("after %d of %d renewals, the relay sent %v", n, renewals, f)
			}
		}
		if f := k.next(); !f.GetHalfClose() {
			t.Errorf("after all renewals, the relay sent %v", f)
		}
	})
}

// TestJoinedIsBounded checks that the memory that a relay uses for a client depends on the leases
// that the client currently keeps alive, not on all the leases that it has ever kept alive.
func TestJoinedIsBounded(t *testing.T) {
	keeps(t, func(k *kept) {
		c := k.client(7, 0)
		k.mu.Lock()
		defer k.mu.Unlock()
		for id := int64(2); id < 10_000; id++ {
			k.joinLocked(c, &pb.RelayJoined{
				Ids: []int64{id}, Tokens: []uint64{7}, Groups: []uint64{5}, TtlMs: []int64{10_000},
			})
			k.agent.Leave(c, lease.ID(id))
		}
		if n := len(k.clients[c].joined); n > 2*minJoined {
			t.Errorf("%d leases in memory, one of them kept", n)
		}
	})
}

// TestKeepingClientGone checks that if a client disconnects before the member reports that its
// lease has joined, the lease leaves the group. Otherwise the group's other clients would keep it
// alive.
func TestKeepingClientGone(t *testing.T) {
	keeps(t, func(k *kept) {
		c, err := k.link.Open(&pb.RelayCall{})
		if err != nil {
			t.Fatal(err)
		}
		id := k.next().Channel
		k.begin(c, func(int) {})()
		k.come <- []*pb.RelayFrame{{Channel: id, Joined: &pb.RelayJoined{
			Ids: []int64{1}, Tokens: []uint64{9}, Groups: []uint64{5}, TtlMs: []int64{10_000},
		}}}
		if r := k.next().GetRound(); !slices.Equal(r.GetLeave(), []int64{1}) {
			t.Errorf("the relay sent %v, want lease 1 to leave", r)
		}
	})
}

// TestLeavesGoAtOnce checks that the leases of a disconnected client leave in consecutive rounds
// without pauses.
func TestLeavesGoAtOnce(t *testing.T) {
	keeps(t, func(k *kept) {
		c, err := k.link.Open(&pb.RelayCall{})
		if err != nil {
			t.Fatal(err)
		}
		end := k.begin(c, func(int) {})
		k.next()
		const leases = 2*holder.MaxLeave + 1
		j := &pb.RelayJoined{}
		for id := range int64(leases) {
			j.Ids, j.Tokens = append(j.Ids, id+1), append(j.Tokens, 7)
			j.Groups, j.TtlMs = append(j.Groups, 5), append(j.TtlMs, 10_000)
		}
		k.take(c, &pb.RelayFrame{Joined: j})
		began, left := time.Now(), 0
		end()
		for number := uint64(1); left < leases; number++ {
			r := k.next().GetRound()
			if r.GetNumber() != number || len(r.GetLeave()) == 0 {
				t.Fatalf("round %d: %v", number, r)
			}
			left += len(r.Leave)
			k.outcome(number)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("%d leases left within %v", left, took)
		}
	})
}
