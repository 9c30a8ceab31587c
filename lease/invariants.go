package lease

import (
	"fmt"
	"slices"
)

// CheckInvariants walks the entire state and returns the first inconsistency. It is slow, and
// intended for tests and the simulator.
func (l *Lessor) CheckInvariants() error {
	if err := l.table.checkInvariants(); err != nil {
		return err
	}
	if err := l.keys.checkInvariants(l.table); err != nil {
		return err
	}
	kept := 0
	for slot := range l.table.top {
		r := l.table.record(slot)
		if l.table.keeps(slot) {
			kept += l.KeyCount(r.id)
		}
		if c := l.countdown.get(slot); c != 0 && r.remaining == 0 {
			return fmt.Errorf("lease %d counts down to %d without a checkpoint", r.id, c)
		}
		if r.token > l.lastToken {
			return fmt.Errorf("lease %d has token %d, but the last token is %d", r.id, r.token, l.lastToken)
		}
		if r.id != 0 && (r.ttl <= 0 || r.token == 0 || r.stamp == 0 || r.remaining < 0) {
			return fmt.Errorf("implausible record %+v", *r)
		}
	}
	if kept != l.kept {
		return fmt.Errorf("leases that keep their keys have %d keys, but the count is %d", kept, l.kept)
	}
	if l.tracker == nil {
		return nil
	}
	if l.tracker.table != l.table || l.tracker.now != l.now {
		return fmt.Errorf("the tracker has a different table or clock")
	}
	return l.tracker.checkInvariants()
}

func (t *table) checkInvariants() error {
	named, live, charged, bytes := 0, 0, 0, int64(0)
	free, err := t.freeSlots()
	if err != nil {
		return err
	}
	for slot := range t.top {
		r, x := t.record(slot), t.pages[slot>>pageBits].extra(slot)
		account := t.pages[slot>>pageBits].account(slot)
		if account != "" {
			charged++
		}
		if r.id == 0 {
			if *r != (record{}) || x != nil || !free[slot] || account != "" {
				return fmt.Errorf("free slot %d has %+v, %+v; in the free list: %v", slot, *r, x, free[slot])
			}
			continue
		}
		if y := x.orEmpty(); y.originalTTL < 0 || y.lockDelay < 0 ||
			y.originalTTL > 0 && (y.lockDelay == 0 || r.ttl != y.lockDelay) {
			return fmt.Errorf("lease %d has ttl %d, which contradicts %+v", r.id, r.ttl, y)
		}
		live++
		info := t.info(slot)
		bytes += info.Bytes()
		if at, ok := t.find(r.id); !ok || at != slot || free[slot] {
			return fmt.Errorf("lease %d is in slot %d, but the index returned %d, %v", r.id, slot, at, ok)
		}
		if x != nil && x.name != "" {
			named++
			if at, ok := t.names.find(x.name); !ok || at != slot {
				return fmt.Errorf("name %q is in slot %d, but the index returned %d, %v", x.name, slot, at, ok)
			}
		}
	}
	if live != t.index.len || named != t.names.len {
		return fmt.Errorf("%d leases and %d names, but the index has %d and %d",
			live, named, t.index.len, t.names.len)
	}
	if charged != t.charged {
		return fmt.Errorf("%d leases are charged to accounts, but the count is %d", charged, t.charged)
	}
	if bytes != t.bytes {
		return fmt.Errorf("leases use %d bytes, but the count is %d", bytes, t.bytes)
	}
	if err := t.index.checkInvariants(); err != nil {
		return err
	}
	if err := t.names.checkInvariants(t.epoch); err != nil {
		return err
	}
	for _, p := range t.pages {
		if p.epoch > t.epoch {
			return fmt.Errorf("a page has epoch %d, but its table has epoch %d", p.epoch, t.epoch)
		}
	}
	return nil
}

// freeSlots returns the free slots, or an error if one is listed twice.
func (t *table) freeSlots() (map[uint32]bool, error) {
	free := map[uint32]bool{}
	for _, slot := range t.free {
		if free[slot] {
			return nil, fmt.Errorf("slot %d is in the free list twice", slot)
		}
		free[slot] = true
	}
	return free, nil
}

func (x *index) checkInvariants() error {
	entries := 0
	for i, b := range x.directory {
		places := 1 << (x.depth - b.depth)
		if x.directory[i&^(places-1)] != b {
			return fmt.Errorf("the bucket at %d, of depth %d, is not at the start of its range", i, b.depth)
		}
		if i&(places-1) != 0 {
			continue // already seen
		}
		used := 0
		for at := range b.slots {
			if b.slots[at] != 0 {
				used++
			}
			if (b.slots[at] == 0) != (b.tags[at] == 0) {
				return fmt.Errorf("a bucket slot has entry %d, but tag %d", b.slots[at], b.tags[at])
			}
		}
		if used != int(b.used) || used > bucketFull {
			return fmt.Errorf("a bucket has %d entries, but the count is %d", used, b.used)
		}
		if [tagsPerWord]uint8(b.tags[:]) != [tagsPerWord]uint8(b.tags[bucketSize:]) {
			return fmt.Errorf("the last tags do not repeat the first ones: %v", b.tags)
		}
		entries += used
	}
	if entries != x.len || len(x.directory) != 1<<x.depth {
		return fmt.Errorf("%d entries, but the count is %d; directory size %d",
			entries, x.len, len(x.directory))
	}
	return nil
}

func (n *names) checkInvariants(epoch uint64) error {
	before, count := "", 0
	for _, p := range n.pages {
		if len(p.entries) == 0 || len(p.entries) > maxNames || p.epoch > epoch {
			return fmt.Errorf("invalid page: %d names, epoch %d", len(p.entries), p.epoch)
		}
		for _, e := range p.entries {
			if e.name <= before {
				return fmt.Errorf("name %q after %q", e.name, before)
			}
			before = e.name
			count++
		}
	}
	if count != n.len {
		return fmt.Errorf("%d names, but the count is %d", count, n.len)
	}
	return nil
}

func (a *attachments) checkInvariants(t *table) error {
	linked := 0
	for slot := range t.top {
		list := a.lists.get(slot)
		if list.count > 0 && t.record(slot).id == 0 {
			return fmt.Errorf("free slot %d has %d keys", slot, list.count)
		}
		n, prev := uint32(0), uint32(0)
		for i := list.first; i != 0; i = a.entries.at(i).next {
			e := a.entries.at(i)
			if e.slot != slot || e.prev != prev || a.owner[e.key] != i {
				return fmt.Errorf("entry %d %+v is misplaced in the list of slot %d, after %d", i, *e, slot, prev)
			}
			prev = i
			n++
		}
		if n != list.count {
			return fmt.Errorf("slot %d has %d keys, but the count is %d", slot, n, list.count)
		}
		linked += int(n)
	}
	unused := 0
	for i := a.free; i != 0; i = a.entries.at(i).next {
		unused++
	}
	if linked != len(a.owner) || linked+unused != int(a.top) {
		return fmt.Errorf("%d keys, but %d linked and %d unused entries out of %d",
			len(a.owner), linked, unused, a.top)
	}
	return nil
}

// behind reports whether the last Advance may have left some work for the next one.
func (t *tracker) behind() bool {
	at, ok := t.wheel.Next()
	group, some := t.nextGroup()
	return t.promotion != nil || ok && Instant(at) <= t.now || some && group <= t.now
}

func (t *tracker) checkInvariants() error {
	var dues, silents, inWheel int
	for slot := range t.table.top {
		at, in := t.wheel.At(slot)
		r, k := t.table.record(slot), t.timings.get(slot)
		if r.id == 0 {
			if in || k != (timing{}) {
				return fmt.Errorf("free slot %d is timed: %+v, in wheel %v", slot, k, in)
			}
			continue
		}
		if p := t.promotion; p != nil && slot >= p.reached && slot < p.end && k.expiry == 0 {
			if in || k != (timing{}) {
				return fmt.Errorf("promotion has not reached lease %d, but it is timed: %+v, in wheel %v",
					r.id, k, in)
			}
			continue
		}
		if fail := t.misplaced(slot, k, Instant(at), in); fail != "" {
			return fmt.Errorf("lease %d at %d: %s: %+v, in wheel %v at %d",
				r.id, t.now, fail, k, in, at)
		}
		if k.state&isDue != 0 {
			dues++
			if !slices.Contains(t.due.all(), dueEntry{k.expiry, placed{r.id, slot}}) {
				return fmt.Errorf("lease %d is due but not in the queue", r.id)
			}
		}
		if k.state&isSilent != 0 {
			silents++
			if !slices.Contains(t.silent, slot) {
				return fmt.Errorf("lease %d is silent but not in the queue", r.id)
			}
		}
		if in {
			inWheel++
		}
	}
	if err := t.due.checkInvariants(); err != nil {
		return err
	}
	if err := t.checkGroups(); err != nil {
		return err
	}
	if dues != t.dues || silents != t.silents || inWheel != t.wheel.Len() {
		return fmt.Errorf("%d due, %d silent, %d in the wheel; the counts are %d, %d, %d",
			dues, silents, inWheel, t.dues, t.silents, t.wheel.Len())
	}
	return nil
}

// misplaced describes what is wrong with the timing of a lease. It returns "" if nothing is.
func (t *tracker) misplaced(slot uint32, k timing, at Instant, in bool) string {
	r, places := t.table.record(slot), 0
	for _, f := range []flags{isDue, isExpiring, isBlocked} {
		if k.state&f != 0 {
			places++
		}
	}
	if in {
		places++
	}
	if k.group != 0 {
		places++
	}
	switch {
	case places != 1:
		return "not in exactly one place"
	case in && at > k.expiry:
		return "wakes after its expiry"
	case in && at <= t.now && !t.behind():
		return "should have fired"
	case in && k.state == 0 && at > k.quiet:
		return "wakes after it becomes silent"
	case k.group != 0 && (k.state != 0 || r.remaining != 0 || k.delayed):
		return "in a group, but not live"
	case k.state&isExpiring != 0 && k.state != isExpiring:
		return "expiring, but other flags are set"
	case k.state&isBlocked != 0 && (k.state&isPending == 0 || k.expiry > t.now):
		return "held for no reason"
	case k.state&isDue != 0 && (k.expiry > t.now || k.state != isDue):
		return "due for no reason"
	case k.state&isSilent != 0 && k.state&isPending != 0:
		return "silent and pending"
	case k.delayed != t.table.delayed(slot):
		return "delayed flag is wrong"
	case k.state == 0 && r.remaining == 0 && k.quiet > t.now.after(t.cfg.silence(r.ttl)):
		return "a renewal would make it silent sooner"
	}
	return ""
}

// checkGroups checks the lists of the groups against the leases in groups.
func (t *tracker) checkGroups() error {
	members, over := 0, 0
	for place, g := range t.groups.list {
		if g == nil {
			continue
		}
		n, prev := 0, uint32(0)
		for at := g.first; at != 0; at = t.timings.at(at - 1).next {
			k := t.timings.at(at - 1)
			if k.group != uint32(place)+1 || k.prev != prev {
				return fmt.Errorf("slot %d is misplaced in the list of group %d: %+v", at-1, g.id, *k)
			}
			prev = at
			n++
		}
		at, in := t.groups.wheel.At(g.place)
		if known := t.groups.of[g.id] == g; n != g.len || g.over == in || g.over == known ||
			in && Instant(at) > g.quiet {
			return fmt.Errorf("group %+v has %d leases, in wheel %v at %d", *g, n, in, at)
		}
		if g.over {
			over++
		}
		members += n
	}
	in := 0
	for slot := range t.table.top {
		if t.timings.get(slot).group != 0 {
			in++
		}
	}
	if in != members || over != len(t.groups.over) {
		return fmt.Errorf("%d leases are in groups, but the groups have %d; "+
			"%d groups are listed as ended, but %d are",
			in, members, len(t.groups.over), over)
	}
	return nil
}

func (q *dueQueue) all() (list []dueEntry) {
	for i := range q.len {
		list = append(list, *q.entries.at(i))
	}
	return list
}

func (q *dueQueue) checkInvariants() error {
	for i, e := range q.all() {
		if e.before(q.entries.at(uint32(max(0, i-1) / fanOut))) {
			return fmt.Errorf("%+v comes before its parent", e)
		}
	}
	return nil
}
