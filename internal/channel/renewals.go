package channel

import (
	"context"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// Most of what idle clients send are renewals, each in a small message. Over a link they go in
// columns: those of all channels of a moment in one message, which the member takes at once, and
// wakes none of the streams that they came over. What a member does not answer at once is sent to
// it as any other message, so that nothing but the usual is left to those streams.

const (
	// A renewal waits at a relay for others, for a hundredth of the TTL of its lease, but no longer
	// than maxLinger. What else is sent takes it along. The TTL is that of the last answer to a
	// renewal in columns, if the client has sent nothing else since: that could have changed it.
	lingerShare = 100
	maxLinger   = 150 * time.Millisecond
	// maxTold bounds the leases of a channel whose TTLs are known for that.
	maxTold = 256
	// maxRows bounds the leases of one message of columns; that is in the protocol. From manyRows on
	// a message waits for no others, and has no answers to more renewals: it is to stay below 64 KiB
	// (maxBatch).
	maxRows  = 1024
	manyRows = maxRows / 2
	// maxRenewals bounds the requests of a channel that were sent so and have no answer, and the
	// answers that nobody has taken.
	maxRenewals = 64
	// maxOpen bounds the leases of a relay whose renewals have no answer yet that was sent. With
	// manyOpen, none of them is to wait for long.
	maxOpen  = 1 << 19
	manyOpen = maxOpen / 2
)

// Renewal is a request of a channel to renew leases.
type Renewal struct {
	Channel *Channel
	Request uint64
	IDs     []int64
	Tokens  []uint64 // one for each of IDs, 0 for any
}

// A Renewer takes renewals of many channels. It must not block. It calls answer once or more, now
// or later, with a part of the list and what makes the answer to that, which is called once, soon.
// Each renewal is in one of the parts.
type Renewer interface {
	RenewColumns(list []Renewal, answer func(part []Renewal, f func() *pb.RelayRenewed))
}

// rowsOf returns how many leases there are.
func rowsOf(list []Renewal) (n int) {
	for _, r := range list {
		n += len(r.IDs)
	}
	return n
}

type contextKey struct{}

// Context returns a context that knows the channel of its call.
func (c *Channel) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// Of returns the channel of the call whose context it is, nil if the call came without a relay.
func Of(ctx context.Context) *Channel {
	c, _ := ctx.Value(contextKey{}).(*Channel)
	return c
}

// Crowded reports whether the relay has renewals of so many leases without an answer that none is
// to wait for long. A relay with more than twice as many is ended.
func (c *Channel) Crowded() bool {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	return c.link.columns.open > manyOpen
}

// SetServer says what serves the channel's renewals.
func (c *Channel) SetServer(s any) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.idle.server = s
}

// Server returns what SetServer has set, nil if nothing has.
func (c *Channel) Server() any {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	return c.idle.server
}

// idle is what a channel has for a client that mostly renews.
type idle struct {
	// Of a relay.
	renewing map[uint64]inColumns // by request; those that have no answer
	told     map[int64]time.Duration
	others   uint64 // messages that did not go in columns
	closing  bool   // nothing follows but those that have no answer
	// Of a member.
	server  any    // see SetServer
	receive func() // see Rest; nil if somebody receives
}

// inColumns is a renewal that went in columns.
type inColumns struct {
	message []byte // nil if it is answered no more
	ids     []int64
	others  uint64 // messages of the channel that had gone otherwise
}

// columns is what a link has of renewals.
type columns struct {
	takes   bool              // of a relay: the member takes them
	rows    *pb.RelayRenewals // of a relay: to be sent
	due     time.Time         // when they are
	renewer Renewer           // of a member; nil if it takes none
	answers []answer
	open    int // leases of a relay whose answers were not sent
}

// answer is what makes an answer, to renewals of so many leases.
type answer struct {
	rows int
	make func() *pb.RelayRenewed
}

// SendRenewals lets a relay send renewals in columns.
func (l *Link) SendRenewals() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.columns.takes = true
}

// TakeRenewals lets a member take renewals in columns. It is to be called before Run.
func (l *Link) TakeRenewals(r Renewer) { l.columns.renewer = r }

// Renew sends a message that is a renewal and nothing else, in columns. It reports false if the
// message is to be sent as any other.
func (c *Channel) Renew(message []byte, r Renewal) bool {
	l := c.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.mayRenewLocked() {
		return false
	}
	if _, twice := c.idle.renewing[r.Request]; twice {
		return false
	}
	rows := l.columns.rows
	if len(rows.GetIds())+len(r.IDs) > maxRows {
		return false
	}
	due := time.Now()
	if len(rows.GetIds())+len(r.IDs) < manyRows {
		due = due.Add(c.lingerLocked(r.IDs))
	}
	if rows == nil || due.Before(l.columns.due) {
		l.columns.due = due
		notify(l.wake)
	}
	if rows == nil {
		rows = &pb.RelayRenewals{}
		l.columns.rows = rows
	}
	if c.idle.renewing == nil {
		c.idle.renewing = make(map[uint64]inColumns)
	}
	c.idle.renewing[r.Request] = inColumns{message, r.IDs, c.idle.others}
	rows.Leases = countOne(rows.Leases, len(rows.Channels), len(r.IDs))
	rows.Channels = append(rows.Channels, c.id)
	rows.Requests = append(rows.Requests, r.Request)
	rows.Ids = append(rows.Ids, r.IDs...)
	rows.Tokens = append(rows.Tokens, r.Tokens...)
	return true
}

// lingerLocked returns for how long a renewal of leases may wait for others: not at all before all
// of their TTLs are known.
func (c *Channel) lingerLocked(ids []int64) time.Duration {
	d := maxLinger
	for _, id := range ids {
		d = min(d, c.idle.told[id]/lingerShare)
	}
	return d
}

// learnLocked notes the TTLs of leases that were renewed.
func (c *Channel) learnLocked(r inColumns, ttls []int64) {
	if r.others != c.idle.others {
		return // they may have changed
	}
	if c.idle.told == nil {
		c.idle.told = make(map[int64]time.Duration)
	}
	for i := range min(len(ttls), len(r.ids)) {
		if len(c.idle.told) >= maxTold {
			clear(c.idle.told)
		}
		c.idle.told[r.ids[i]] = milliseconds(ttls[i])
	}
}

// sentLocked notes that a message went otherwise than in columns.
func (c *Channel) sentLocked() {
	c.idle.others++
	clear(c.idle.told)
}

// mayRenewLocked reports whether a renewal may go in columns now: behind all that was sent, and not
// beyond what the client reads.
func (c *Channel) mayRenewLocked() bool {
	return c.link.columns.takes && !c.over && !c.idle.closing && c.queued == 0 &&
		len(c.idle.renewing)+len(c.pieces) < maxRenewals
}

// countOne adds a count to a column of counts, before which there are so many others. The column is
// empty as long as all are 1.
func countOne(list []uint32, before, n int) []uint32 {
	if list == nil && n == 1 {
		return nil
	}
	for len(list) < before {
		list = append(list, 1)
	}
	return append(list, uint32(n))
}

// forEach calls f with each request of columns, and the leases that are its own. It reports false,
// and may have called f for some, if one has none, or there are not as many as the counts say.
func forEach(counts []uint32, requests, leases int, f func(request, from, to int)) bool {
	if counts != nil && len(counts) != requests {
		return false
	}
	at := 0
	for i := range requests {
		n := 1
		if counts != nil {
			n = int(counts[i])
		}
		if n == 0 || n > leases-at {
			return false
		}
		f(i, at, at+n)
		at += n
	}
	return at == leases
}

// renew takes renewals of a relay. An error ends the link.
func (l *Link) renew(r *pb.RelayRenewals) error {
	if r == nil {
		return nil
	}
	renewer := l.columns.renewer
	if renewer == nil || len(r.Requests) != len(r.Channels) || len(r.Tokens) != len(r.Ids) ||
		len(r.Ids) > maxRows {
		return fmt.Errorf("%w: columns of renewals do not fit", errProtocol)
	}
	list := make([]Renewal, 0, len(r.Channels))
	l.mu.Lock()
	fits := forEach(r.Leases, len(r.Channels), len(r.Ids), func(i, from, to int) {
		if c := l.channels[r.Channels[i]]; c != nil { // else it has ended here
			list = append(list, Renewal{c, r.Requests[i], r.Ids[from:to:to], r.Tokens[from:to:to]})
		}
	})
	l.columns.open += rowsOf(list)
	open := l.columns.open
	l.mu.Unlock()
	switch {
	case !fits:
		return fmt.Errorf("%w: counts of renewals do not fit", errProtocol)
	case open > maxOpen:
		return fmt.Errorf("%w: it does not read, and renewals of %d leases wait", errProtocol, open)
	}
	renewer.RenewColumns(list, l.answer)
	return nil
}

// answer takes what makes an answer to renewals.
func (l *Link) answer(part []Renewal, f func() *pb.RelayRenewed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.columns.answers = append(l.columns.answers, answer{rowsOf(part), f})
	notify(l.wake)
}

// takeAnswers makes the answers that are to be sent in one message, which have so many bytes.
func (l *Link) takeAnswers() (out []*pb.RelayRenewed, size int) {
	for _, a := range l.takeAnswered() {
		r := a.make() // not locked, which comes after the lock of what makes it
		size += proto.Size(r)
		out = append(out, r)
	}
	return out, size
}

func (l *Link) takeAnswered() []answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	list, n, rows := l.columns.answers, 0, 0
	for ; n < len(list) && rows < manyRows; n++ {
		rows += list[n].rows
	}
	if l.columns.answers = list[n:]; len(l.columns.answers) == 0 {
		l.columns.answers = nil
	}
	l.columns.open -= rows
	return list[:n:n]
}

// Renewed makes an answer to renewals. A TTL of 0, or less, is of a lease of which more is to be
// said. Without TTLs that is so of all.
func Renewed(h *pb.Header, list []Renewal, ttls []int64) *pb.RelayRenewed {
	most := min(len(list), len(ttls)) // of those that have all they asked for
	out := &pb.RelayRenewed{
		Header: h, Channels: make([]uint64, 0, most), Requests: make([]uint64, 0, most),
		TtlMs: make([]int64, 0, len(ttls)),
	}
	for _, r := range list {
		n := min(len(r.IDs), len(ttls))
		its := ttls[:n]
		ttls = ttls[n:]
		if !allRenewed(its) {
			out.UnansweredChannels = append(out.UnansweredChannels, r.Channel.id)
			out.UnansweredRequests = append(out.UnansweredRequests, r.Request)
			continue
		}
		out.Leases = countOne(out.Leases, len(out.Channels), n)
		out.Channels = append(out.Channels, r.Channel.id)
		out.Requests = append(out.Requests, r.Request)
		out.TtlMs = append(out.TtlMs, its...)
	}
	return out
}

func allRenewed(ttls []int64) bool {
	if len(ttls) == 0 {
		return false
	}
	for _, ttl := range ttls {
		if ttl <= 0 {
			return false
		}
	}
	return true
}

// renewed takes what a member says of renewals. An error ends the link.
func (l *Link) renewed(r *pb.RelayRenewed) error {
	if len(r.Requests) != len(r.Channels) ||
		len(r.UnansweredRequests) != len(r.UnansweredChannels) {
		return fmt.Errorf("%w: columns of answers do not fit", errProtocol)
	}
	messages, ttls := make([][]byte, len(r.Channels)), make([][]int64, len(r.Channels))
	fits := forEach(r.Leases, len(r.Channels), len(r.TtlMs), func(i, from, to int) {
		ttls[i] = r.TtlMs[from:to]
		messages[i] = renewedMessage(r.Header, r.Requests[i], ttls[i])
	})
	if !fits {
		return fmt.Errorf("%w: counts of answers do not fit", errProtocol)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, id := range r.Channels {
		c, request := l.channels[id], r.Requests[i]
		if asked := c.renewingLocked(request); asked.message != nil {
			c.pieces = append(c.pieces, piece{bytes: messages[i], whole: true, free: true})
			c.tellLocked()
			c.learnLocked(asked, ttls[i])
			c.settleLocked(request)
		}
	}
	for i, id := range r.UnansweredChannels {
		c, request := l.channels[id], r.UnansweredRequests[i]
		if asked := c.renewingLocked(request); asked.message != nil {
			c.idle.renewing[request] = inColumns{} // it is answered no more
			go c.resend(request, asked.message)
		}
	}
	return nil
}

// renewingLocked returns a renewal that has no answer: without a message if there is none, or c is
// nil.
func (c *Channel) renewingLocked(request uint64) (r inColumns) {
	if c != nil {
		r = c.idle.renewing[request]
	}
	return r
}

// renewedMessage is what a client hears of a renewal.
func renewedMessage(h *pb.Header, request uint64, ttls []int64) []byte {
	b, err := proto.Marshal(&pb.ServerMessage{Responses: []*pb.Response{{
		Id: request, Body: &pb.Response_Renew{Renew: &pb.RenewResponse{Header: h, TtlMs: ttls}},
	}}})
	if err != nil {
		panic(err) // numbers can always be encoded
	}
	return b
}

// resend sends a renewal that was not answered as any other message.
func (c *Channel) resend(request uint64, message []byte) {
	_ = c.Send(context.Background(), message) // an error means that the channel has ended
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.settleLocked(request)
}

// settleLocked notes that a renewal is on its way in columns no more. The end of what is sent
// follows the last of them.
func (c *Channel) settleLocked(request uint64) {
	delete(c.idle.renewing, request)
	if len(c.idle.renewing) == 0 && c.idle.closing && !c.shut && !c.over {
		c.shutLocked()
	}
}

func milliseconds(ms int64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}
