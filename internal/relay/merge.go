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

// Equal watches of leasehold.v1 are merged. The first watch is sent to the member unchanged. The
// other watches are also sent to the member, but changed so that they receive no events. The member
// still responds to them, checks the permissions of their clients, and ends them. Their events come
// from an additional watch that they share. The relay opens the shared watch with the same call and
// the same principal. If the principal loses its permission, the member ends the shared watch
// before sending any more events.
//
// The relay tracks the revision that each client has reached (follower.at). A watch joins the
// shared watch if the shared watch has, or will have, all events that the client is missing.
// Otherwise, the watch first catches up through a separate call. If a client is slow, its watch
// catches up in the same way, once the client has read its waiting messages.

const (
	// maxMerged limits the size, in bytes, of watch requests that can be merged.
	maxMerged = 4 << 10
	// maxRecent limits the bytes of recent events that each shared watch keeps for watches that
	// join. maxAllRecent is the limit for all shared watches together.
	maxRecent    = 64 << 10
	maxAllRecent = 64 << 20
	// maxUnread limits how many bytes of events can wait in a call for its client to read them.
	maxUnread = 64 << 10
	// catchUpEvery is the interval between progress notifications, in milliseconds, for a watch
	// that is catching up.
	catchUpEvery = 100
	// unmergedTime is how long a principal's watches stay unmerged after one of its limits has
	// rejected an additional watch.
	unmergedTime = time.Minute
	// reopenDelay is the delay before reopening a shared watch that has ended.
	reopenDelay = time.Second
	// refusalTime is how long to wait after a failure for the member to report the reason.
	refusalTime = time.Second
	// maxTurns limits how many of a call's watches catch up concurrently. turnTime limits how long
	// each of them can do so while other watches are waiting.
	maxTurns = 4
	turnTime = time.Second
	// A watch that is rejected by a limit retries after firstPause. The delay doubles with each
	// attempt, up to lastPause. The watch keeps retrying while others of the same principal are
	// catching up.
	firstPause = 50 * time.Millisecond
	lastPause  = 800 * time.Millisecond
)

// errRefused means that a limit prevents a watch from catching up.
var errRefused = errors.New("a limit has been reached")

var errUnfollowed = status.Error(codes.Unavailable, "leasehold: the member no longer sends the "+
	"relay these events; continue with a new watch")

// principal is a hash of a caller's identity; see caller.
type principal [sha256.Size]byte

// watchKey identifies a set of equal watches.
type watchKey struct {
	upstream *upstream
	who      principal
	what     string
}

// merger merges the watches of all clients.
type merger struct {
	count  *metrics
	recent atomic.Int64 // total size of recent in all groups, in bytes

	mu     sync.Mutex // guards the following fields
	groups map[watchKey]*group
	// For each principal, the time until which its watches are not merged, and the number of its
	// watches that are catching up.
	unmerged map[principal]time.Time
	catching map[principal]int
}

func newMerger(count *metrics) *merger {
	return &merger{
		count: count, groups: make(map[watchKey]*group),
		unmerged: make(map[principal]time.Time),
		catching: make(map[principal]int),
	}
}

// catchUp changes the number of a principal's watches that are catching up.
func (m *merger) catchUp(who principal, more int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.catching[who] += more; m.catching[who] == 0 {
		delete(m.catching, who)
	}
}

// catchesUp reports whether any watch of a principal is catching up.
func (m *merger) catchesUp(who principal) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.catching[who] > 0
}

// group is a set of equal watches.
type group struct {
	merger *merger
	key    watchKey
	call   *pb.RelayCall // the call of one of the watches; all have the same principal
	ask    *pb.WatchRequest
	all    int // guarded by the merger's mu

	mu       sync.Mutex // guards the following fields; locked after the merger's mu
	merged   int        // number of watches that receive no events from the member
	joined   map[*follower]struct{}
	channel  *channel.Channel // the shared watch; nil if there is none
	recent   []watchMessage   // its most recent messages; their revisions are above floor
	bytes    int              // total size of recent
	floor    int64
	reopenAt time.Time // when a shared watch may be opened again
}

// enter adds a watch to its group and decides whether to merge it.
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
	f.group, f.merged = g, g.all > 0 && !m.isUnmergedLocked(key.who)
	g.all++
	if f.merged {
		g.mu.Lock()
		g.merged++
		g.mu.Unlock()
	}
}

// leave removes a watch that has ended.
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

// isUnmergedLocked reports whether a principal's watches must not be merged.
func (m *merger) isUnmergedLocked(who principal) bool {
	now := time.Now()
	for k, until := range m.unmerged {
		if now.After(until) {
			delete(m.unmerged, k)
		}
	}
	_, apart := m.unmerged[who]
	return apart
}

// setUnmerged records that a limit prevents the relay from opening its own watches for a principal,
// in addition to the watches of its clients.
func (m *merger) setUnmerged(who principal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unmerged[who] = time.Now().Add(unmergedTime)
}

// open opens a watch for the relay itself, starting at the given revision.
func (g *group) open(from, progress int64) (*channel.Channel, error) {
	ask := proto.CloneOf(g.ask)
	ask.StartRevision, ask.ProgressMs = from, progress
	b, err := proto.Marshal(ask)
	if err != nil {
		return nil, err
	}
	c, err := g.key.upstream.Open(g.call)
	if err != nil {
		return nil, err
	}
	_ = c.Send(context.Background(), b) // does not block; Recv returns any error
	c.CloseSend()
	return c, nil
}

func endOfOwn() *pb.RelayEnd {
	return &pb.RelayEnd{Code: int32(codes.Canceled), Message: errAbandoned.Error()}
}

// join adds a watch to the shared watch. It returns false if the shared watch cannot provide all
// missing events, or if the client reads too slowly.
func (g *group) join(f *follower) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.isOver() {
		return true
	}
	if g.channel == nil {
		if time.Now().Before(g.reopenAt) {
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

// follow distributes the messages of a shared watch until that watch ends.
func (g *group) follow(c *channel.Channel) {
	for began := false; ; began = true {
		b, err := c.Recv(context.Background())
		t, ok := parseWatchMessage(b)
		if err != nil || !ok {
			g.lose(c)
			return
		}
		if began {
			g.distribute(c, t)
		}
	}
}

// distribute passes a message to all watches that have joined.
func (g *group) distribute(c *channel.Channel, t watchMessage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.channel != c {
		return
	}
	if t.fragment || len(t.bytes) > largeMessage {
		// Each watch gets this message through a separate call once its client has room for it.
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

// keepLocked keeps events for watches that join later.
func (g *group) keepLocked(t watchMessage) {
	if t.first == 0 {
		return
	}
	g.recent = append(g.recent, t)
	for g.countLocked(len(t.bytes) + cost); g.bytes > maxRecent; {
		g.countLocked(-len(g.recent[0].bytes) - cost)
		g.floor = g.recent[0].revision
		g.recent[0] = watchMessage{}
		g.recent = g.recent[1:]
	}
	if g.merger.recent.Load() > maxAllRecent {
		g.forgetLocked(t.revision)
	}
}

// forgetLocked drops all kept messages. floor is the highest revision that is no longer available.
func (g *group) forgetLocked(floor int64) {
	g.countLocked(-g.bytes)
	g.recent, g.floor = nil, floor
}

func (g *group) countLocked(more int) {
	g.bytes += more
	g.merger.recent.Add(int64(more))
}

// cost is the approximate memory used by a message, excluding its bytes.
const cost = 64

// dismissLocked makes all joined watches catch up separately.
func (g *group) dismissLocked() {
	for f := range g.joined {
		delete(g.joined, f)
		go f.catchUp()
	}
}

// lose records that a shared watch has ended.
func (g *group) lose(c *channel.Channel) {
	wait := reopenDelay
	if g.refused(c) {
		wait = unmergedTime // the watches that share it would otherwise retry forever
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.channel == c {
		g.channel, g.reopenAt = nil, time.Now().Add(wait)
		g.forgetLocked(g.floor)
		g.merger.count.shared.Dec()
		g.dismissLocked()
	}
}

// refused handles one of the relay's own watches that the member has ended. It reports whether a
// limit was the reason.
func (g *group) refused(c *channel.Channel) bool {
	c.End(endOfOwn())
	e := c.Ended()
	full := e != nil && codes.Code(e.Code) == codes.ResourceExhausted
	if full {
		g.merger.setUnmerged(g.key.who)
	}
	return full
}

// caller contains everything that identifies a caller to a member, except for its address. If two
// callers are equal, they have the same principal and permissions.
type caller struct {
	headers     []*pb.RelayHeaderField
	certificate []byte
	sum         principal
}

// plain lists headers that do not identify the caller.
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
		panic(err) // numbers and bytes can always be marshaled
	}
	c.sum = sha256.Sum256(b)
	return c
}

// call returns the description of a watch call made by the caller.
func (c *caller) call(address string) *pb.RelayCall {
	return &pb.RelayCall{
		Method: pb.StoreService_Watch_FullMethodName, Headers: c.headers, Address: address,
		Certificate: c.certificate,
	}
}

// mergeable returns a watch's request without its start revision. ok is false for watches that
// cannot be merged: large watches, watches without events, and watches with unknown options.
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
