package relay

import (
	"context"
	"maps"
	"math"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/channel"
	"leasehold.dev/internal/holder"
	"leasehold.dev/lease"
)

const (
	// A renewal waits in the relay so that it can share a round with others. It waits for a
	// hundredth of the TTL of its leases (at most gatherMost). It also waits until a twentieth of
	// the TTL (at most pauseMost) has passed since the previous round. Holders can afford the
	// delay, because they renew long before a lease ends.
	gatherShare = 100
	gatherMost  = 150 * time.Millisecond
	pauseShare  = 20
	pauseMost   = 500 * time.Millisecond
	// maxAnswers limits a client's unread responses. maxWaiting limits the total size, in bytes, of
	// these responses and of the client's renewals that are waiting for a round. maxRequests limits
	// the number of leases in the waiting renewals of all clients.
	maxAnswers  = 64
	maxWaiting  = 64 << 10
	maxRequests = 1 << 20
	// roundTime is the timeout for a round. If half of the shortest TTL in the round is shorter,
	// that is the timeout instead. After the timeout, the waiting renewals are sent to the member
	// on their clients' streams. The member's response then also explains the delay.
	roundTime = 2 * time.Second
)

// keeping keeps alive the leases that clients renew on streams to one member. The member handles
// and checks the first renewal of a lease. It then reports that the lease has joined one of the
// relay's groups. Later renewals are answered by rounds; see holder.Agent.
type keeping struct {
	began time.Time // the agent's clock starts at this time
	link  *channel.Link

	mu      sync.Mutex // guards the following fields
	agent   holder.Agent[*channel.Channel, place]
	clients map[*channel.Channel]*clientLeases
	timer   *time.Timer
	due     time.Time     // when the next round is due; zero if nothing is waiting for one
	least   time.Duration // shortest TTL of the renewals waiting for the next round; 0 if none
	sent    time.Time     // when the previous round was sent
	late    time.Time     // when the current round times out
	renewed time.Time     // when an outcome last arrived for a round that renewed any group
	closed  bool
}

// clientLeases contains the leases that are kept alive for one client stream.
type clientLeases struct {
	// joined contains the leases to remove from their groups when the stream ends. When it exceeds
	// room entries, leases that have already left their groups are removed from it.
	joined map[lease.ID]struct{}
	room   int

	waiting    int  // bytes of renewals that are waiting for a round or to be sent to the member
	counted    int  // the cost of these renewals, as passed to count
	halfClosed bool // the client has finished sending
	count      func(bytes int)
}

// waiting is a renewal that is waiting for a round.
type waiting struct {
	renewal
	channel *channel.Channel
	message []byte
	ttls    []int64
	open    int // number of leases without an outcome
	failed  bool
}

// place identifies one of the leases of a renewal.
type place struct {
	*waiting
	at int
}

func newKeeping() *keeping {
	k := &keeping{began: time.Now(), clients: make(map[*channel.Channel]*clientLeases)}
	k.timer = time.AfterFunc(time.Hour, k.step)
	k.timer.Stop()
	return k
}

// over sets the link over which rounds are sent. It must be called before the link runs.
func (k *keeping) over(l *channel.Link) {
	k.link = l
	l.TakeGroups(0, k.take)
}

// take handles a frame about groups from the member.
func (k *keeping) take(c *channel.Channel, f *pb.RelayFrame) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch j, o := f.Joined, f.Outcome; {
	case k.closed:
	case j != nil:
		k.joinLocked(c, j)
	case o != nil:
		groups := make([]holder.RenewedGroup, len(o.Groups))
		for i, g := range o.Groups {
			groups[i] = holder.RenewedGroup{
				ID: lease.GroupID(g.Id), TTL: lease.TTL(g.TtlMs), At: lease.Instant(g.AtMs),
			}
			if g.TtlMs > 0 {
				k.renewed = time.Now()
			}
			for _, id := range g.Left {
				groups[i].Left = append(groups[i].Left, lease.ID(id))
			}
		}
		k.answerLocked(o.Header, k.agent.Answered(o.Number, groups))
	}
	k.armLocked()
}

func (k *keeping) joinLocked(c *channel.Channel, j *pb.RelayJoined) {
	its := k.clients[c]
	n := len(j.Ids)
	if len(j.Tokens) != n || len(j.Groups) != n || len(j.TtlMs) != n {
		return
	}
	for i, id := range j.Ids {
		join := holder.Join[*channel.Channel]{
			By: c, ID: lease.ID(id), Token: lease.Token(j.Tokens[i]),
			Group: lease.GroupID(j.Groups[i]), TTL: lease.TTL(j.TtlMs[i]), Rounds: j.AnsweredRounds,
		}
		// the client is gone, but the group would keep its lease alive
		if its == nil {
			k.agent.Unwanted(join)
			continue
		}
		k.agent.Joined(k.now(), join)
		its.joined[lease.ID(id)] = struct{}{}
	}
	if its != nil && len(its.joined) > its.room {
		maps.DeleteFunc(its.joined, func(id lease.ID, _ struct{}) bool {
			return k.agent.Keeps(c, id, 0) == 0
		})
		its.room = 2*len(its.joined) + minJoined
	}
}

const minJoined = 64

// now returns the time on the agent's clock.
func (k *keeping) now() lease.Instant { return lease.Instant(time.Since(k.began).Milliseconds()) }

// confirmed reports whether the member can reach a leader. This is the case if a round was
// confirmed within the given time and no round has been pending for half that long.
func (k *keeping) confirmed(within time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Since(k.renewed) < within && !(k.agent.Pending() && time.Since(k.sent) >= within/2)
}

// begin registers a client stream. The returned function unregisters it.
func (k *keeping) begin(c *channel.Channel, count func(bytes int)) (end func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	its := &clientLeases{joined: make(map[lease.ID]struct{}), count: count}
	k.clients[c] = its
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		for id := range k.clients[c].joined {
			if k.agent.Leave(c, id) {
				k.dueLocked(time.Now())
			}
		}
		delete(k.clients, c)
		its.countWaiting(-its.counted)
		its.count = func(int) {} // for renewals that are still being passed on
	}
}

// renew accepts a message from a client stream if it contains only a renewal and all its leases are
// in groups.
func (k *keeping) renew(c *channel.Channel, message []byte) bool {
	if len(message) > maxWaiting {
		return false
	}
	r, ok := parseRenewal(message)
	if !ok {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	its := k.clients[c]
	if k.closed || its == nil || its.halfClosed || c.Behind() >= maxAnswers ||
		its.waiting+len(message)+c.Undelivered() > maxWaiting ||
		k.agent.Waiting()+len(r.ids) > maxRequests {
		return false
	}
	least := time.Duration(math.MaxInt64)
	for i, id := range r.ids {
		ttl := k.agent.Keeps(c, id, r.tokens[i])
		if ttl == 0 {
			return false
		}
		least = min(least, time.Duration(ttl)*time.Millisecond)
	}
	w := &waiting{
		renewal: r, channel: c, message: message, ttls: make([]int64, len(r.ids)), open: len(r.ids),
	}
	its.waiting += len(message)
	its.countWaiting(w.cost())
	now := k.now()
	for i, id := range r.ids {
		k.agent.Renew(now, id, place{w, i})
	}
	if k.least == 0 || least < k.least {
		k.least = least
	}
	due := time.Now().Add(min(gatherMost, least/gatherShare))
	if next := k.sent.Add(min(pauseMost, least/pauseShare)); due.Before(next) {
		due = next
	}
	k.dueLocked(due)
	return true
}

// dueLocked schedules a round for the given time or earlier.
func (k *keeping) dueLocked(at time.Time) {
	if k.due.IsZero() || at.Before(k.due) {
		k.due = at
		k.armLocked()
	}
}

// armLocked sets the timer for step.
func (k *keeping) armLocked() {
	switch {
	case k.agent.LeavesWait():
		k.due = time.Now()
	case k.due.IsZero() && k.agent.Waits():
		k.due = time.Now().Add(gatherMost)
	}
	at := k.due
	if k.agent.Pending() {
		at = k.late
	} else if silent, ok := k.agent.SilentAt(); ok {
		its := k.began.Add(time.Duration(silent) * time.Millisecond)
		if at.IsZero() || its.Before(at) {
			at = its
		}
	}
	if at.IsZero() || k.closed {
		k.timer.Stop()
	} else {
		k.timer.Reset(time.Until(at))
	}
}

// step sends a round or gives up on one that has timed out.
func (k *keeping) step() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	now := time.Now()
	if k.agent.Pending() && !now.Before(k.late) {
		k.answerLocked(nil, k.agent.Reset())
	}
	if r, ok := k.agent.Next(k.now()); ok {
		patience := roundTime
		if k.least > 0 {
			patience = min(patience, k.least/2)
		}
		k.due, k.least, k.sent, k.late = time.Time{}, 0, now, now.Add(patience)
		k.link.SendGroups(&pb.RelayFrame{Round: roundOf(r)})
	} else if !k.agent.Pending() {
		k.due = time.Time{} // no round is due
	}
	k.armLocked()
}

func roundOf(r holder.Round) *pb.RelayRound {
	out := &pb.RelayRound{Number: r.Number, ResetGroups: r.Fresh}
	for _, l := range r.Leave {
		out.Leave = append(out.Leave, int64(l.ID))
		out.LeaveGroups = append(out.LeaveGroups, uint64(l.Group))
		out.LeaveAsOf = append(out.LeaveAsOf, int64(l.AsOf))
	}
	for _, g := range r.Renew {
		out.Groups = append(out.Groups, uint64(g))
	}
	return out
}

// answerLocked answers the renewals for which all outcomes are known. If any lease was not renewed,
// the renewal goes to the member instead.
func (k *keeping) answerLocked(h *pb.Header, list []holder.Answer[place]) {
	for _, a := range list {
		w := a.Of.waiting
		w.ttls[a.Of.at] = int64(a.TTL)
		w.failed = w.failed || a.TTL == 0
		if w.open--; w.open > 0 {
			continue
		}
		its := k.clients[w.channel]
		if its == nil {
			continue // the call has ended
		}
		if w.failed {
			go k.passOn(its, w)
			continue
		}
		w.channel.Deliver(renewedMessage(h, w.request, w.ttls))
		its.answeredLocked(w)
	}
}

// passOn sends a renewal to the member like any other message. It waits until the message has been
// sent.
func (k *keeping) passOn(its *clientLeases, w *waiting) {
	_ = w.channel.Send(context.Background(), w.message) // an error means that the call has ended
	k.mu.Lock()
	defer k.mu.Unlock()
	its.answeredLocked(w)
}

// answeredLocked records that a renewal is no longer waiting.
func (its *clientLeases) answeredLocked(w *waiting) {
	its.waiting -= len(w.message)
	its.countWaiting(-w.cost())
	if its.halfClosed && its.waiting == 0 {
		w.channel.CloseSend()
	}
}

// countWaiting changes the cost of the client's waiting renewals by a number of bytes.
func (its *clientLeases) countWaiting(bytes int) {
	its.counted += bytes
	its.count(bytes)
}

// cost returns the cost of a waiting renewal in bytes, including the records of its leases.
func (w *waiting) cost() int { return len(w.message) + leaseCost*len(w.ids) }

const leaseCost = 128

// closeSend signals that the client has finished sending. If renewals are waiting, it does so after
// they have been answered.
func (k *keeping) closeSend(c *channel.Channel) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if its := k.clients[c]; its != nil && its.waiting > 0 {
		its.halfClosed = true
		return
	}
	c.CloseSend()
}

// renewedMessage encodes the response to a renewal.
func renewedMessage(h *pb.Header, request uint64, ttls []int64) []byte {
	b, err := proto.Marshal(&pb.ServerMessage{Responses: []*pb.Response{{
		Id: request, Body: &pb.Response_Renew{Renew: &pb.RenewResponse{Header: h, TtlMs: ttls}},
	}}})
	if err != nil {
		panic(err) // numbers can always be marshaled
	}
	return b
}

// close stops k. It is called when the link has ended.
func (k *keeping) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	k.timer.Stop()
}
