package fsm

import "leasehold.dev/internal/encoding"

// Reader decodes successive log entries and reuses its memory. A Machine retains strings, lists of
// commands and long values from them, but never a command itself. It copies short values. The zero
// value is ready to use. A Reader is not safe for concurrent use.
type Reader struct {
	d        decoder
	groups   []Group
	commands []Command
}

// Decode is like DecodeEntry, but its result is valid only until the next call or Release, and only
// while data is unchanged: short values of puts point into data.
func (r *Reader) Decode(data []byte) ([]Group, error) {
	r.d.views = true
	return r.decode(data)
}

func (r *Reader) decode(data []byte) ([]Group, error) {
	r.Release()
	d := &r.d
	d.Decoder = logFormat.Open(data)
	for d.Len() > 0 {
		r.group()
	}
	return r.groups, d.Err()
}

// group decodes a group. The group has as many commands as its header says. Without a header, it
// consists of all commands before the next header.
func (r *Reader) group() {
	d, first := &r.d, len(r.commands)
	var g Group
	if d.Peek() < groupHeader {
		for d.Len() > 0 && d.Peek() < groupHeader {
			r.command()
		}
	} else {
		var n int
		g.Origin, n = d.group()
		for i := 0; i < n && d.Err() == nil; i++ {
			r.command()
		}
	}
	n := len(r.commands)
	g.Commands = r.commands[first:n:n]
	r.groups = append(r.groups, g)
}

// command decodes a command, and adds it to commands if there was no error.
func (r *Reader) command() {
	if c := r.d.command(); r.d.Err() == nil {
		r.commands = append(r.commands, c)
	}
}

// group decodes what AppendGroup wrote.
func (d *decoder) group() (o Origin, n int) {
	f := d.Flags("a group", groupHeader|groupOrigin|groupCount)
	if f&groupOrigin != 0 {
		o = Origin{Member: d.Uint64(), Seq: d.Uint64()}
	}
	n = 1
	if f&groupCount != 0 {
		n = d.Count()
	}
	return o, n
}

// Version returns the version of the last decoded entry, until Release.
func (r *Reader) Version() byte { return r.d.Version() }

// Release makes the memory of the last result of Decode available for reuse.
func (r *Reader) Release() {
	r.d.Decoder = encoding.Decoder{}
	if r.d.mem != nil {
		r.d.mem.release()
	}
	r.groups, r.commands = emptied(r.groups), emptied(r.commands)
}

// keptMost is the maximum number of items of each type whose memory a Reader keeps.
const keptMost = 1024

func emptied[T any](s []T) []T {
	if cap(s) > keptMost {
		return nil
	}
	clear(s)
	return s[:0]
}

// slabs contains a decoder's memory for commands and their parts.
type slabs struct {
	puts     slab[Put]
	deletes  slab[DeleteRange]
	ranges   slab[Range]
	txns     slab[Txn]
	compares slab[Compare]
	ops      slab[Op]
	grants   slab[Grant]
	revokes  slab[Revoke]
	onces    slab[Once]
}

func (m *slabs) release() {
	m.puts.release()
	m.deletes.release()
	m.ranges.release()
	m.txns.release()
	m.compares.release()
	m.ops.release()
	m.grants.release()
	m.revokes.release()
	m.onces.release()
}

// slab is memory for items of one type.
//
// Invariant: free is the tail of all, and is zeroed.
type slab[T any] struct{ all, free []T }

// one returns memory for one item.
func (s *slab[T]) one() *T { return &s.many(1)[0] }

// many returns memory for n items.
func (s *slab[T]) many(n int) []T {
	if n > len(s.free) {
		s.all = make([]T, max(n, 2*len(s.all)))
		s.free = s.all
	}
	list := s.free[:n:n]
	s.free = s.free[n:]
	return list
}

// release makes all memory available for reuse.
func (s *slab[T]) release() {
	if len(s.all) > keptMost {
		s.all = nil
	}
	clear(s.all[:max(0, len(s.all)-len(s.free))])
	s.free = s.all
}

// list decodes what encoding.AppendList wrote. It calls one for each element, with memory for the
// element. It returns nil if there are no elements, or if there was an error.
func list[T any](d *decoder, s *slab[T], one func(*T)) []T {
	n := d.Count()
	if n == 0 {
		return nil
	}
	list := s.many(n)
	for i := range list {
		if one(&list[i]); d.Err() != nil {
			return nil
		}
	}
	return list
}
