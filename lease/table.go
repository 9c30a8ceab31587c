package lease

import (
	"cmp"
	"maps"
	"slices"
)

// record holds the fields that every lease has. It contains no pointers, so the garbage collector
// does not scan pages of records.
type record struct {
	id        ID // 0 if the slot is free
	ttl       TTL
	token     Token
	remaining TTL // at the last checkpoint; 0 if not checkpointed
	stamp     uint64
}

// extra holds the fields that only some leases have. It is never modified, only replaced (see
// table.amend), so a View can share it.
type extra struct {
	name, owner, requestID string
	principal              string
	labels                 map[string]string
	rare                   *rare // nil if all fields are zero
}

// rare holds the fields of an extra that few leases have. It is immutable as well.
type rare struct {
	lockDelay TTL
	// originalTTL is the original TTL of a delayed lease, whose record has the lock delay as its
	// TTL. 0 means that the lease is not delayed.
	originalTTL TTL
	secret      Secret
	keepKeys    bool
	bound       bool
}

// orEmpty returns the rare part of a lease, or an empty one.
func (x *extra) orEmpty() rare {
	if x == nil || x.rare == nil {
		return rare{}
	}
	return *x.rare
}

// page holds pageSize leases. extras is nil until a lease on the page has one. accounts is nil
// until a lease on the page is charged to an account.
type page struct {
	records  *[pageSize]record
	extras   *[pageSize]*extra
	accounts *[pageSize]string
	// epoch is the epoch of the table when the page was created or copied. If it is older than the
	// table's epoch, a View may hold the page, so the page is copied before it is written.
	epoch uint64
}

// table is the replicated part of the engine: leases in slots.
//
// Invariants: find(id) is s if and only if slot s holds lease id; likewise, names maps the name of
// each named lease to its slot; every slot below top is either in index or in free.
type table struct {
	pages []*page
	epoch uint64
	index index
	names names
	free  []uint32
	top   uint32
	found uint32 // the last result of find; by now the slot may hold another lease
	// changes increases at least once with every write to a page.
	changes uint64
	bytes   int64 // Invariant: the sum of Terms.Bytes of all leases
	charged int   // Invariant: the number of leases charged to an account
}

// AttachBytes is the approximate memory used by an attached key. KeepBytes is added if the lease
// has KeepKeys: when such a lease expires, its keys are stored again without a lease, which takes
// that much more memory.
const (
	AttachBytes = 100
	KeepBytes   = 200
)

// leaseBytes, extraBytes and labelBytes are approximate memory sizes, excluding text. leaseBytes
// includes the times of a lease and its positions in index and wheel. extraBytes includes the
// position in names.
const (
	leaseBytes = 200
	extraBytes = 160
	labelBytes = 100
)

// Bytes returns the approximate size of a lease with these terms, without its keys.
func (t *Terms) Bytes() int64 {
	texts := len(t.Name) + len(t.Owner) + len(t.RequestID) + len(t.Principal)
	n := leaseBytes + texts
	if texts > 0 || len(t.Labels) > 0 || t.Secret != (Secret{}) || t.LockDelay != 0 ||
		t.KeepKeys || t.Bound {
		n += extraBytes
	}
	for k, v := range t.Labels {
		n += labelBytes + len(k) + len(v)
	}
	return int64(n)
}

// bytesOf returns Terms.Bytes of the lease in a slot.
func (t *table) bytesOf(slot uint32) int64 {
	x := t.extra(slot)
	if x == nil {
		return leaseBytes
	}
	y := x.orEmpty()
	terms := Terms{
		Name: x.name, Owner: x.owner, RequestID: x.requestID, Labels: x.labels,
		Principal: x.principal,
		LockDelay: y.lockDelay, Secret: y.secret, KeepKeys: y.keepKeys, Bound: y.bound,
	}
	return terms.Bytes()
}

func newTable(size int) *table {
	return &table{index: newIndex(size)}
}

// record returns the record in a slot for reading.
func (t *table) record(slot uint32) *record {
	return &t.pages[slot>>pageBits].records[slot&(pageSize-1)]
}

// mutable returns the page of a slot for writing. It copies the page if a View may hold it.
func (t *table) mutable(slot uint32) *page {
	t.changes++
	p := &t.pages[slot>>pageBits]
	if (*p).epoch != t.epoch {
		c := &page{epoch: t.epoch, records: new([pageSize]record)}
		*c.records = *(*p).records
		if (*p).extras != nil {
			c.extras = new([pageSize]*extra)
			*c.extras = *(*p).extras
		}
		if (*p).accounts != nil {
			c.accounts = new([pageSize]string)
			*c.accounts = *(*p).accounts
		}
		*p = c
	}
	return *p
}

// change returns the record in a slot for writing.
func (t *table) change(slot uint32) *record {
	return &t.mutable(slot).records[slot&(pageSize-1)]
}

// amend replaces the extra in a slot with a copy, and returns the copy for writing.
func (t *table) amend(slot uint32) *extra {
	p := t.mutable(slot)
	if p.extras == nil {
		p.extras = new([pageSize]*extra)
	}
	x := &p.extras[slot&(pageSize-1)]
	c := &extra{}
	if *x != nil {
		*c = **x
	}
	*x = c
	return c
}

// delayed reports whether the lease in a slot is in its lock delay.
func (t *table) delayed(slot uint32) bool {
	x := t.extra(slot)
	return x != nil && x.rare != nil && x.rare.originalTTL != 0
}

// bound reports whether the lease in a slot is bound to its key.
func (t *table) bound(slot uint32) bool {
	x := t.extra(slot)
	return x != nil && x.rare != nil && x.rare.bound
}

// keeps reports whether the lease in a slot keeps its keys when it expires.
func (t *table) keeps(slot uint32) bool {
	x := t.extra(slot)
	return x != nil && x.rare != nil && x.rare.keepKeys
}

func (t *table) extra(slot uint32) *extra { return t.pages[slot>>pageBits].extra(slot) }

// extra returns the extra in a slot, or nil if there is none.
func (p *page) extra(slot uint32) *extra {
	if p.extras == nil {
		return nil
	}
	return p.extras[slot&(pageSize-1)]
}

// account returns the account of the lease in a slot, or "" if there is none.
func (p *page) account(slot uint32) string {
	if p.accounts == nil {
		return ""
	}
	return p.accounts[slot&(pageSize-1)]
}

// charge charges the lease in a slot to an account, or to none if account is "".
func (t *table) charge(slot uint32, account string) {
	p := t.mutable(slot)
	if p.account(slot) != "" {
		t.charged--
	}
	if account != "" {
		t.charged++
	} else if p.accounts == nil {
		return
	}
	if p.accounts == nil {
		p.accounts = new([pageSize]string)
	}
	p.accounts[slot&(pageSize-1)] = account
}

// info returns a copy of the lease in a slot.
func (p *page) info(slot uint32) Info {
	r := &p.records[slot&(pageSize-1)]
	i := Info{
		Terms: Terms{ID: r.id, TTL: r.ttl},
		Token: r.token, Remaining: r.remaining, Stamp: r.stamp,
	}
	if x := p.extra(slot); x != nil {
		i.Name, i.Owner, i.RequestID = x.name, x.owner, x.requestID
		i.Principal = x.principal
		i.Labels = maps.Clone(x.labels)
		if y := x.rare; y != nil {
			i.LockDelay, i.KeepKeys, i.Secret = y.lockDelay, y.keepKeys, y.secret
			i.Bound = y.bound
			if i.Delayed = y.originalTTL != 0; i.Delayed {
				i.TTL = y.originalTTL
			}
		}
	}
	return i
}

func (t *table) info(slot uint32) Info { return t.pages[slot>>pageBits].info(slot) }

// insert puts a lease into a free slot. Its ID and name must not be in use.
func (t *table) insert(i Info) uint32 {
	slot := t.store(i)
	t.found = slot
	t.enter(i.ID, slot)
	return slot
}

// store is like insert, but does not update the index.
func (t *table) store(i Info) uint32 {
	slot := t.top
	if n := len(t.free); n > 0 {
		slot = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		t.top++
		if int(slot>>pageBits) == len(t.pages) {
			t.pages = append(t.pages, &page{epoch: t.epoch, records: new([pageSize]record)})
		}
	}
	r := &t.mutable(slot).records[slot&(pageSize-1)]
	*r = record{
		id: i.ID, ttl: i.TTL, token: i.Token, remaining: i.Remaining, stamp: i.Stamp,
	}
	y := rare{
		lockDelay: i.LockDelay, secret: i.Secret, keepKeys: i.KeepKeys, bound: i.Bound,
	}
	if i.Delayed {
		r.ttl, y.originalTTL = i.LockDelay, i.TTL
	}
	if y != (rare{}) || i.Name != "" || i.Owner != "" || i.RequestID != "" || i.Principal != "" ||
		len(i.Labels) > 0 {
		x := t.amend(slot)
		x.name, x.owner, x.requestID = i.Name, i.Owner, i.RequestID
		x.principal = i.Principal
		x.labels = maps.Clone(i.Labels)
		x.setRare(y)
	}
	t.bytes += i.Bytes()
	if i.Name != "" {
		t.names.add(i.Name, slot, t.epoch)
	}
	return slot
}

func (x *extra) setRare(y rare) {
	x.rare = nil
	if y != (rare{}) {
		kept := y // a copy, so that y does not escape to the heap for every lease
		x.rare = &kept
	}
}

// remove frees a slot.
func (t *table) remove(slot uint32) {
	t.bytes -= t.bytesOf(slot)
	t.charge(slot, "")
	p := t.mutable(slot)
	t.leave(p.records[slot&(pageSize-1)].id)
	if x := p.extra(slot); x != nil {
		if x.name != "" {
			t.names.remove(x.name, t.epoch)
		}
		p.extras[slot&(pageSize-1)] = nil
	}
	p.records[slot&(pageSize-1)] = record{}
	t.free = append(t.free, slot)
}

// placed is a lease's ID and slot.
type placed struct {
	id   ID
	slot uint32
}

// inOrder returns the n leases in pages, in ID order.
func inOrder(pages []*page, n int) []placed {
	out := make([]placed, 0, n)
	for i, p := range pages {
		for j := range p.records {
			if id := p.records[j].id; id != 0 {
				out = append(out, placed{id, uint32(i<<pageBits | j)})
			}
		}
	}
	slices.SortFunc(out, byID)
	return out
}

func byID(a, b placed) int { return cmp.Compare(a.id, b.id) }
