package relay

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/channel"
)

// Watches of leasehold.v1 that are equal are merged. The first of them goes to the member as it is.
// Each other one is asked of the member too, but to tell no events: the member answers it, decides
// whether its client may have it, and ends it. Its events come from one more watch of the relay's
// own, which all of them share. It is the same call by the same principal, so the member ends it
// when that may not be told any more, before it tells anything more.
//
// Which revision a client has been told is known for each watch (follower.at). A watch joins the
// shared one if that has, or still will, tell all that is missing; else it catches up by a call of
// its own, and joins then. So does one whose client reads slowly, once it has read what waits.

const (
	// maxMerged bounds the bytes of requests for watches that are merged.
	maxMerged = 4 << 10
	// maxRecent bounds the bytes of what was told last, for those that join, and maxAllRecent those
	// of all shared watches.
	maxRecent    = 64 << 10
	maxAllRecent = 64 << 20
	// maxUnread bounds the bytes of events that wait in a call for its client.
	maxUnread = 64 << 10
	// catchUpEvery is how often, in milliseconds, a watch that catches up hears how far it is.
	catchUpEvery = 100
	// apartTime is how long watches of a principal are not merged if a limit of it refuses another
	// one.
	apartTime = time.Minute
	// againTime is how long after its end a shared watch is not opened again.
	againTime = time.Second
	// refusalTime is how long after a failure the member may take to say what it means.
	refusalTime = time.Second
	// maxTurns bounds the watches of a call that catch up at once, and turnTime how long one does
	// while others wait.
	maxTurns = 4
	turnTime = time.Second
	// One that a limit refuses tries again, first after firstPause, then after twice as long, up to
	// lastPause. While others of the principal catch up, it goes on to try.
	firstPause = 50 * time.Millisecond
	lastPause  = 800 * time.Millisecond
)

// errRefused means that a limit leaves no room for a watch that catches up.
var errRefused = errors.New("a limit leaves no room")

var errUntold = status.Error(codes.Unavailable, "leasehold: the member tells the relay no more of "+
	"what is watched; go on with a new watch")

// principal stands for what a member sees of who calls: see caller.
type principal [sha256.Size]byte

// watchKey is what equal watches have in common.
type watchKey struct {
	way  *way
	who  principal
	what string
}

// merger knows the watches of all clients.
type merger struct {
	count  *metrics
	recent atomic.Int64 // bytes of recent, of all groups

	mu     sync.Mutex // guards what follows
	groups map[watchKey]*group
	// Of principals: until when their watches are not merged, and how many catch up.
	apart    map[principal]time.Time
	catching map[principal]int
}

func newMerger(count *metrics) *merger {
	return &merger{
		count: count, groups: make(map[watchKey]*group),
		apart:    make(map[principal]time.Time),
		catching: make(map[principal]int),
	}
}

// catchUp notes that so many more watches of a principal catch up.
func (m *merger) catchUp(who principal, more int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.catching[who] += more; m.catching[who] == 0 {
		delete(m.catching, who)
	}
}

// catchesUp reports whether a watch of a principal catches up.
func (m *merger) catchesUp(who principal) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.catching[who] > 0
}

// group is watches that are equal.
type group struct {
	merger *merger
	key    watchKey
	call   *pb.RelayCall // of one of them; all are by the same principal
	ask    *pb.WatchRequest
	all    int // guarded by the merger's mu

	mu      sync.Mutex // guards what follows; after the merger's
	merged  int        // watches that have no events of their own
	joined  map[*follower]struct{}
	channel *channel.Channel // of the shared watch; nil for none
	recent  []told           // what it has told last: all above the revision floor
	bytes   int              // of recent
	floor   int64
	again   time.Time // not before may there be another one
}

// enter notes a watch, and says whether it is to be merged with others.
func (m *merger) enter(f *follower, key watchKey, ask *pb.WatchRequest) {
	m.count.watches.Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.groups[key]
	if g == nil {
		g = &group{merger: m, key: key, ask: ask, joined: make(map[*follower]struct{})}
		g.call = f.of.caller.call(f.of.call.Address)
		m.groups[key] = g
	}
	f.group, f.merged = g, g.all > 0 && !m.isApartLocked(key.who)
	g.all++
	if f.merged {
		g.mu.Lock()
		g.merged++
		g.mu.Unlock()
	}
}

// leave notes that a watch has ended.
func (m *merger) leave(f *follower) {
	m.count.watches.Dec()
	m.mu.Lock()
	defer m.mu.Unlock()
	g := f.group
	if g.all--; g.all == 0 {
		delete(m.groups, g.key)
	}
	if !f.merged {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.joined, f)
	if g.merged--; g.merged == 0 && g.channel != nil {
		g.channel.End(endOfOwn())
		g.channel = nil
		g.forgetLocked(g.floor)
		m.count.shared.Dec()
	}
}

// isApartLocked reports whether watches of a principal are not to be merged.
func (m *merger) isApartLocked(who principal) bool {
	now := time.Now()
	for k, until := range m.apart {
		if now.After(until) {
			delete(m.apart, k)
		}
	}
	_, apart := m.apart[who]
	return apart
}

// setApart notes that a limit leaves a principal no more watches than those of its clients.
func (m *merger) setApart(who principal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apart[who] = time.Now().Add(apartTime)
}

// open opens a watch of the relay's own, from a revision on.
func (g *group) open(from, progress int64) (*channel.Channel, error) {
	ask := proto.CloneOf(g.ask)
	ask.StartRevision, ask.ProgressMs = from, progress
	b, err := proto.Marshal(ask)
	if err != nil {
		return nil, err
	}
	c, err := g.key.way.Open(g.call)
	if err != nil {
		return nil, err
	}
	_ = c.Send(context.Background(), b) // there is room; if it has ended, that comes
	c.CloseSend()
	return c, nil
}

func endOfOwn() *pb.RelayEnd {
	return &pb.RelayEnd{Code: int32(codes.Canceled), Message: errGaveUp.Error()}
}

// join lets the shared watch tell a watch what it was not told yet. It reports false if that can
// not tell all of it, or the client reads too slowly.
func (g *group) join(f *follower) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.isOver() {
		return true
	}
	if g.channel == nil {
		if time.Now().Before(g.again) {
			return false
		}
		c, err := g.open(f.at+1, g.ask.ProgressMs)
		if err != nil {
			return false
		}
		g.channel = c
		g.forgetLocked(f.at)
		g.merger.count.shared.Inc()
		go g.follow(c)
	}
	if f.at < g.floor {
		return false
	}
	for _, t := range g.recent {
		if !f.give(t) {
			return false
		}
	}
	g.joined[f] = struct{}{}
	return true
}

// follow takes what a shared watch tells, until it ends.
func (g *group) follow(c *channel.Channel) {
	for began := false; ; began = true {
		b, err := c.Recv(context.Background())
		t, ok := parseTold(b)
		if err != nil || !ok {
			g.lose(c)
			return
		}
		if began {
			g.tell(c, t)
		}
	}
}

// tell tells all that have joined.
func (g *group) tell(c *channel.Channel, t told) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.channel != c {
		return
	}
	if t.fragment || len(t.bytes) > largeMessage {
		// Each has it from the member, as far as there is room for it.
		g.forgetLocked(t.revision)
		g.dismissLocked()
		return
	}
	g.keepLocked(t)
	for f := range g.joined {
		if !f.give(t) {
			delete(g.joined, f)
			go f.catchUp()
		}
	}
}

// keepLocked keeps events for those that join.
func (g *group) keepLocked(t told) {
	if t.first == 0 {
		return
	}
	g.recent = append(g.recent, t)
	for g.countLocked(len(t.bytes) + cost); g.bytes > maxRecent; {
		g.countLocked(-len(g.recent[0].bytes) - cost)
		g.floor = g.recent[0].revision
		g.recent[0] = told{}
		g.recent = g.recent[1:]
	}
	if g.merger.recent.Load() > maxAllRecent {
		g.forgetLocked(t.revision)
	}
}

// forgetLocked keeps nothing of what was told up to a revision, which is all.
func (g *group) forgetLocked(floor int64) {
	g.countLocked(-g.bytes)
	g.recent, g.floor = nil, floor
}

func (g *group) countLocked(more int) {
	g.bytes += more
	g.merger.recent.Add(int64(more))
}

// cost is what a message takes of the memory besides its bytes, about.
const cost = 64

// dismissLocked lets all that have joined go on by themselves.
func (g *group) dismissLocked() {
	for f := range g.joined {
		delete(g.joined, f)
		go f.catchUp()
	}
}

// lose notes that a shared watch has ended.
func (g *group) lose(c *channel.Channel) {
	wait := againTime
	if g.refused(c) {
		wait = apartTime // or those that share it would try for ever
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.channel == c {
		g.channel, g.again = nil, time.Now().Add(wait)
		g.forgetLocked(g.floor)
		g.merger.count.shared.Dec()
		g.dismissLocked()
	}
}

// refused notes that the member has ended a watch of the relay's own, and reports whether that was
// for a limit.
func (g *group) refused(c *channel.Channel) bool {
	c.End(endOfOwn())
	e := c.Ended()
	full := e != nil && codes.Code(e.Code) == codes.ResourceExhausted
	if full {
		g.merger.setApart(g.key.who)
	}
	return full
}

// caller is what a member sees of who calls, without the address: it is the same principal, with
// the same rights, whenever two are equal.
type caller struct {
	headers     []*pb.RelayHeaderField
	certificate []byte
	sum         principal
}

// plain are headers that say nothing of who calls.
var plain = []string{"user-agent", "traceparent", "tracestate", "leasehold-cluster"}

func callerOf(call *pb.RelayCall) *caller {
	list := slices.DeleteFunc(slices.Clone(call.Headers), func(h *pb.RelayHeaderField) bool {
		return slices.Contains(plain, h.Name)
	})
	slices.SortStableFunc(list, func(a, b *pb.RelayHeaderField) int {
		return strings.Compare(a.Name, b.Name)
	})
	c := &caller{headers: list, certificate: call.Certificate}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(c.call(""))
	if err != nil {
		panic(err) // numbers and bytes can always be encoded
	}
	c.sum = sha256.Sum256(b)
	return c
}

// call is a call of the caller, of a watch.
func (c *caller) call(address string) *pb.RelayCall {
	return &pb.RelayCall{
		Method: pb.StoreService_Watch_FullMethodName, Headers: c.headers, Address: address,
		Certificate: c.certificate,
	}
}

// mergeable returns what a watch asks for, but for its beginning. It reports false if the watch is
// not to be merged: one that is large, tells nothing, or has options that are not known here.
func mergeable(r *pb.WatchRequest) (ask *pb.WatchRequest, what string, ok bool) {
	if len(r.GetKey()) == 0 || r.StartRevision < 0 || r.NoPut && r.NoDelete ||
		len(r.ProtoReflect().GetUnknown()) > 0 || proto.Size(r) > maxMerged {
		return nil, "", false
	}
	ask = proto.CloneOf(r)
	ask.StartRevision = 0
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(ask)
	return ask, string(b), err == nil
}
