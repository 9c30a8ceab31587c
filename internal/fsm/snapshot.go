package fsm

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// chunkSize is the approximate size of the chunks of a snapshot.
const chunkSize = 1 << 20

// Record tags in a snapshot. A snapshot is a sequence of chunks, each of which contains whole
// records. Each record follows its tag. There is one header, then members, alarms, users and roles,
// leases, sessions and key records, and one trailer that counts the records.
const (
	tagHeader byte = iota + 1
	tagMember
	tagAlarm
	tagLease
	tagRecord
	tagTrailer
	tagRemoved // among the members
	tagSession // least recently used first
	tagAnswer  // of the preceding session, ordered by number
	tagHolds   // after the leases
	tagOrphan  // also after the leases
	tagControl // before the roles and users, if access control was ever used
	tagRole
	tagUser
	tagSessionUser // of the preceding session, unless it is anonymous
	tagLimits      // after the users
	tagAccount     // after the leases
	tagComparison  // after the alarms, if there ever was a comparison
	tagRestore     // after the header, if the state comes from a backup

	tagLast = tagRestore
)

// header is the first record of a snapshot.
type header struct {
	Version             ClusterVersion // its number is also the version of the snapshot
	Index, Term         uint64
	Revision, Compacted int64
	LastToken           lease.Token
	Generation          uint64
	LastEvent           uint64 // number of the last lease event
	LastSession         uint64
}

// restoreID decodes the ID of a restore. It fails if the state already has one.
func (d *decoder) restoreID(earlier uint64) uint64 {
	id := d.Uint64()
	if id == 0 || earlier != 0 {
		d.Fail("invalid or repeated restore ID")
	}
	return id
}

func appendHeader(b []byte, h *header) []byte {
	b = append(b, h.Version.Number)
	b = binary.AppendUvarint(binary.AppendUvarint(b, h.Index), h.Term)
	b = binary.AppendVarint(binary.AppendVarint(b, h.Revision), h.Compacted)
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(h.LastToken)), h.Generation)
	b = binary.AppendUvarint(binary.AppendUvarint(b, h.LastEvent), h.LastSession)
	return appendVersion(b, h.Version)
}

// header decodes what appendHeader wrote, and sets the decoder's version.
func (d *decoder) header() header {
	d.Header()
	return header{
		Index: d.Uvarint(), Term: d.Uvarint(), Revision: d.Varint(), Compacted: d.Varint(),
		LastToken: lease.Token(d.Uvarint()), Generation: d.Uvarint(),
		LastEvent: d.Uvarint(), LastSession: d.Uvarint(), Version: d.clusterVersion(),
	}
}

// Image is an immutable view of the whole state, including leases. Any goroutine can write a
// snapshot from it while the Machine continues.
type Image struct {
	View     *View
	leases   lease.View
	event    uint64 // number of the last lease event
	sessions sessionsImage
	holds    Holds
	// comparison is the encoded comparison. It is empty if there never was one.
	comparison []byte
}

// Image returns the state as of the last applied entry.
func (m *Machine) Image() *Image {
	if m.ahead != nil {
		return m.ahead.before
	}
	return &Image{
		View: m.View(), leases: m.lessor.View(), event: m.events.last,
		sessions: m.sessions.image(), holds: m.AllHolds(),
		comparison: m.meta.comparison.image(),
	}
}

// Encode passes the snapshot to write in chunks of about 1 MiB. The chunk buffer is reused after
// write returns.
func (im *Image) Encode(write func(chunk []byte) error) error {
	e := &encoder{write: write} // the buffer grows on demand, because most states are small
	v, state := im.View, im.leases.State()
	e.record(tagHeader, func(b []byte) []byte {
		return appendHeader(b, &header{
			Index: v.Index, Term: v.Term, Revision: v.KV.Revision(), Compacted: v.KV.Compacted(),
			LastToken: lease.Token(state.LastToken), Generation: state.Generation,
			LastEvent: im.event, LastSession: im.sessions.last, Version: v.Version,
		})
	})
	if v.Restore != 0 {
		e.record(tagRestore, func(b []byte) []byte { return binary.BigEndian.AppendUint64(b, v.Restore) })
	}
	for _, n := range v.Members {
		e.record(tagMember, func(b []byte) []byte { return appendMember(b, n) })
	}
	for _, id := range v.Removed {
		e.record(tagRemoved, func(b []byte) []byte { return binary.BigEndian.AppendUint64(b, id) })
	}
	for _, a := range v.Alarms {
		e.record(tagAlarm, func(b []byte) []byte {
			return appendAlarm(b, a)
		})
	}
	if len(im.comparison) > 0 {
		e.record(tagComparison, func(b []byte) []byte { return append(b, im.comparison...) })
	}
	accessRecords(v.Access, e.record)
	for info := range im.leases.All() {
		e.record(tagLease, func(b []byte) []byte { return appendInfo(b, &info) })
	}
	im.sessions.encode(e)
	for id, ranges := range im.holds.All() {
		e.record(tagHolds, func(b []byte) []byte { return appendHold(b, id, ranges) })
	}
	for o := range im.holds.Orphans() {
		e.record(tagOrphan, func(b []byte) []byte { return appendOrphan(b, o) })
	}
	accountRecords(im.leases, func(r account) {
		e.record(tagAccount, func(b []byte) []byte { return appendAccount(b, r) })
	})
	for r := range v.KV.Records() {
		e.record(tagRecord, func(b []byte) []byte { return appendRecord(b, &r, &e.names) })
	}
	total := e.records
	e.record(tagTrailer, func(b []byte) []byte { return binary.AppendUvarint(b, total) })
	return e.flush()
}

func (im *sessionsImage) encode(e *encoder) {
	for i := range im.list {
		s := &im.list[i]
		e.record(tagSession, func(b []byte) []byte { return appendSession(b, s) })
		if s.user != "" {
			e.record(tagSessionUser, func(b []byte) []byte { return encoding.AppendBytes(b, s.user) })
		}
		for k := range s.answers {
			e.record(tagAnswer, func(b []byte) []byte { return appendAnswer(b, &s.answers[k]) })
		}
	}
}

// encoder collects records into chunks. It keeps the first error.
type encoder struct {
	write   func([]byte) error
	b       []byte
	records uint64
	names   nameTable
	err     error
}

func (e *encoder) record(tag byte, body func([]byte) []byte) {
	if e.err != nil {
		return
	}
	e.b = body(append(e.b, tag))
	e.records++
	if len(e.b) >= chunkSize {
		e.err = e.flush()
	}
}

func (e *encoder) flush() error {
	if len(e.b) > 0 {
		e.err = e.write(e.b)
		e.b = e.b[:0]
	}
	return e.err
}

// Restore builds a Machine from the chunks that Encode wrote. next returns them in order, and
// ok=false after the last one. Restore fails if this release does not support the state: see
// [Machine.CheckVersion].
func Restore(c Config, next func() (chunk []byte, ok bool, err error)) (*Machine, error) {
	return rebuild(c, next, func(r *restorer, s *lease.State) error {
		r.m.holds.shorten(s)
		return r.m.CheckVersion()
	})
}

// rebuild is like Restore, with a hook that can change the numbers in the header before anything
// uses them.
func rebuild(
	c Config, next func() ([]byte, bool, error), change func(*restorer, *lease.State) error,
) (*Machine, error) {
	m := New(c)
	r := &restorer{m: m, next: next, d: &decoder{
		Decoder: snapshotFormat.Decoder(0, nil), names: new(nameTable),
	}}
	state, err := r.head()
	if err != nil {
		return nil, err
	}
	if err := change(r, &state); err != nil {
		return nil, err
	}
	if err := r.tables(state); err != nil {
		return nil, err
	}
	m.metaChange() // members and alarms have been set by the restorer
	m.silences.dropped = m.index
	m.holds.recount(m.lessor.Lookup)
	for id := range m.holds.of {
		if info, ok := m.lessor.Lookup(id); !ok || info.Delayed {
			return nil, fmt.Errorf("%w: lease %016x holds ranges but is not alive", ErrCorrupt, id)
		}
	}
	for _, a := range r.accounts {
		if err := m.restoreAccount(a); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// tables builds the lessor and the store, concurrently where they do not depend on each other.
func (r *restorer) tables(state lease.State) error {
	m := r.m
	var recovered error
	wait := m.async(func() { recovered = m.lessor.Recover(state) })
	loaded, err := mvcc.Load(r.revision, r.compacted, r.all())
	wait()
	if r.err == nil {
		r.err = r.d.Err()
	}
	switch {
	case r.err != nil:
		return r.err
	case err != nil:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case !r.done:
		return fmt.Errorf("%w: snapshot ends early", ErrCorrupt)
	case recovered != nil:
		return fmt.Errorf("%w: %w", ErrCorrupt, recovered)
	}
	wait = m.async(func() { m.store = loaded.Sort() })
	err = m.reattach(r.attached, loaded)
	wait()
	return err
}

// async runs f concurrently if possible, and returns a function that waits for it.
func (m *Machine) async(f func()) (wait func()) {
	if m.cfg.Async != nil {
		return m.cfg.Async(f)
	}
	f()
	return func() {}
}

// reattach rebuilds the attachments of at most n keys. A snapshot does not store attachments,
// because the newest record of a key contains its lease.
func (m *Machine) reattach(n int, loaded *mvcc.Loaded) error {
	err := m.lessor.Reattach(min(n, loaded.Len()), func(yield func(lease.ID, string) bool) {
		for kv := range loaded.Newest() {
			if kv.Lease != 0 && !yield(lease.ID(kv.Lease), kv.Key) {
				return
			}
		}
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

// restorer reads the records of a snapshot. head reads up to the first key record. all yields the
// key records and consumes the trailer.
type restorer struct {
	m         *Machine
	next      func() ([]byte, bool, error)
	d         *decoder
	err       error
	records   uint64
	revision  int64
	compacted int64
	attached  int // number of records of keys attached to a lease
	access    accessRead
	accounts  []account
	pending   byte // a tag that head has read but all must handle
	done      bool // a valid trailer has been read
}

// tag returns the tag of the next record, or 0 at the end. It fetches chunks as needed.
func (r *restorer) tag() byte {
	for r.d.Len() == 0 {
		if r.d.Err() != nil {
			return 0
		}
		chunk, ok, err := r.next()
		if err != nil || !ok {
			r.err = err
			return 0
		}
		r.d = &decoder{
			Decoder: snapshotFormat.Decoder(r.d.Version(), chunk), names: r.d.names,
		}
	}
	r.records++
	return r.d.Byte()
}

func (r *restorer) head() (lease.State, error) {
	var state lease.State
	if t := r.tag(); r.err != nil {
		return state, r.err
	} else if t != tagHeader {
		return state, fmt.Errorf("%w: snapshot has no header", ErrCorrupt)
	}
	h := r.d.header()
	r.m.index, r.m.term = h.Index, h.Term
	r.revision, r.compacted = h.Revision, h.Compacted
	state.LastToken, state.Generation = uint64(h.LastToken), h.Generation
	r.m.events.start(h.LastEvent)
	r.m.sessions.last, r.m.version = h.LastSession, h.Version
	for {
		switch t := r.tag(); t {
		case tagRestore:
			r.m.meta.restore = r.d.restoreID(r.m.meta.restore)
		case tagMember:
			r.m.AddMember(r.d.member())
		case tagRemoved:
			r.m.removed[r.d.Uint64()] = struct{}{}
		case tagAlarm:
			r.m.alarms[r.d.alarm()] = struct{}{}
		case tagComparison:
			r.d.comparison(&r.m.meta.comparison)
		case tagLease:
			info := r.d.info()
			state.Add(&info)
		case tagControl, tagRole, tagUser, tagLimits:
			r.access.take(t, r.d)
		case tagSession:
			r.session()
		case tagSessionUser, tagAnswer:
			r.ofSession(t)
		case tagHolds, tagOrphan:
			r.m.holds.restore(t, r.d)
		case tagAccount:
			r.accounts = append(r.accounts, r.d.account())
		default:
			r.pending = t
			r.finish()
			return state, r.err
		}
	}
}

// finish sets the users and roles, unless there was an error.
func (r *restorer) finish() {
	if r.err == nil {
		r.err = r.d.Err()
	}
	if r.err == nil {
		r.m.meta.access, r.err = r.access.state()
	}
}

// session reads a session.
func (r *restorer) session() {
	l := r.m.sessions
	s := r.d.session()
	if s.ID == 0 || s.ID > l.last || l.byID[s.ID] != nil {
		r.d.Fail("session")
	}
	l.add(s)
}

// ofSession reads the user of the preceding session, or its next result.
func (r *restorer) ofSession(tag byte) {
	l := r.m.sessions
	s := l.root.next
	if s == &l.root {
		r.d.Fail("a user or answer record without a session")
		return
	}
	if tag == tagSessionUser {
		user := r.d.Text()
		if s.user != "" || user == "" || len(s.answers) > 0 {
			r.d.Fail("invalid session user")
		}
		// this evicts nothing, because all sessions fit before the snapshot was written
		l.setUser(s, user)
		return
	}
	a := r.d.answer()
	if i, _ := s.find(a.number); i < len(s.answers) || a.number < s.settled {
		r.d.Fail("invalid session answer")
	}
	l.insert(s, a)
}

func (r *restorer) all() iter.Seq[mvcc.Record] {
	return func(yield func(mvcc.Record) bool) {
		for t := r.pending; ; t = r.tag() {
			switch t {
			case tagRecord:
				rec := r.d.record()
				if rec.Lease != 0 {
					r.attached++
				}
				if r.d.Err() != nil || !yield(rec) {
					return
				}
			case tagTrailer:
				r.done = r.d.Uvarint() == r.records-1 && r.d.Len() == 0
				return
			default:
				r.unexpected(t)
				return
			}
		}
	}
}

// unexpected returns an error for an unexpected record, or for a snapshot that ends early (tag 0).
func (r *restorer) unexpected(tag byte) {
	switch {
	case tag > tagLast:
		r.d.Unknown("record kind", uint64(tag))
	case tag != 0:
		r.d.Fail(fmt.Sprintf("record kind %d is out of place", tag))
	}
}

// Hash returns a hash of the whole replicated state. It is the same on members that applied the
// same entries (S3). It must not change between releases within a cluster version, because members
// compare it (HashState). It walks the whole state, so it must not run on the core's goroutine.
func (im *Image) Hash() (uint32, error) {
	kv, compacted, err := im.View.KV.Hash(0)
	if err != nil {
		return 0, err
	}
	h := hasher{table: crc32.MakeTable(crc32.Castagnoli)}
	h.add(func(b []byte) []byte {
		b = binary.AppendUvarint(b, uint64(kv))
		b = binary.AppendVarint(b, compacted)
		b = binary.AppendVarint(b, im.View.KV.Revision())
		b = binary.AppendUvarint(b, im.event)
		b = appendVersion(append(b, im.View.Version.Number), im.View.Version)
		return binary.AppendUvarint(b, im.View.Restore)
	})
	for _, n := range im.View.Members {
		h.add(func(b []byte) []byte { return appendMember(b, n) })
	}
	for _, id := range im.View.Removed {
		h.add(func(b []byte) []byte { return binary.BigEndian.AppendUint64(b, id) })
	}
	for _, a := range im.View.Alarms {
		h.add(func(b []byte) []byte { return appendAlarm(b, a) })
	}
	accessRecords(im.View.Access, func(_ byte, body func([]byte) []byte) { h.add(body) })
	h.add(func(b []byte) []byte { return append(b, im.comparison...) })
	for info := range im.leases.All() {
		h.add(func(b []byte) []byte { return appendInfo(b, &info) })
	}
	im.sessions.hash(&h)
	for id, ranges := range im.holds.All() {
		h.add(func(b []byte) []byte { return appendHold(b, id, ranges) })
	}
	for o := range im.holds.Orphans() {
		h.add(func(b []byte) []byte { return appendOrphan(b, o) })
	}
	accountRecords(im.leases, func(r account) {
		h.add(func(b []byte) []byte { return appendAccount(b, r) })
	})
	return h.sum, nil
}

// hasher hashes successive records.
type hasher struct {
	table *crc32.Table
	sum   uint32
	b     []byte // buffer for encoding a record
}

func (h *hasher) add(body func([]byte) []byte) {
	h.b = body(h.b[:0])
	h.sum = crc32.Update(h.sum, h.table, h.b)
}

func (im *sessionsImage) hash(h *hasher) {
	h.add(func(b []byte) []byte { return binary.AppendUvarint(b, im.last) })
	for i := range im.list {
		s := &im.list[i]
		h.add(func(b []byte) []byte { return encoding.AppendBytes(appendSession(b, s), s.user) })
		for k := range s.answers {
			h.add(func(b []byte) []byte { return appendAnswer(b, &s.answers[k]) })
		}
	}
}
