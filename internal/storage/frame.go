package storage

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// A segment consists of frames. A frame is one commit. It begins at a block, so that no later write
// touches a block with acknowledged data. It consists of sectors, each with its own checksum,
// because after a crash any sectors of an unfinished commit may be missing.
//
// A sector:
//
//	0-3    CRC-32C of bytes 4 to 511
//	4-7    the number of the sector in the segment
//	8-15   the number of the segment
//	16-23  the number of the commit; the top bit marks the first sector of a frame
//	24-511 content
//
// All numbers are little-endian. The content of a frame is its length (4 bytes), its chain (4
// bytes) and its payload. The chain is the CRC-32C of the payload, continued from the chain of the
// previous commit. The rest of the block is zeros.
const (
	sectorBytes = 512
	blockBytes  = 4096
	sectorHead  = 24
	sectorRoom  = sectorBytes - sectorHead
	frameHead   = 8

	beginsFrame = 1 << 63
)

var (
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
	emptySector [sectorBytes]byte
)

// sectorsOf returns the number of sectors in a frame with the given payload size.
func sectorsOf(payload int) int { return (frameHead + payload + sectorRoom - 1) / sectorRoom }

// frameBytes returns the size of a frame, in whole blocks.
func frameBytes(payload int) int64 {
	return wholeBlocks(int64(sectorsOf(payload)) * sectorBytes)
}

func wholeBlocks(bytes int64) int64 { return (bytes + blockBytes - 1) / blockBytes * blockBytes }

// frame is one commit in a segment.
type frame struct {
	at      int64 // position in the segment
	size    int64 // size in bytes; a multiple of the block size
	commit  uint64
	chain   uint32
	payload []byte
}

// appendTo appends the blocks of the frame to b.
func (f *frame) appendTo(b []byte, segment uint64) []byte {
	start := len(b)
	b = slices.Grow(b, int(f.size))[:start+int(f.size)]
	clear(b[start:])
	var head [frameHead]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(f.payload)))
	binary.LittleEndian.PutUint32(head[4:], f.chain)
	rest := f.payload
	for i := range sectorsOf(len(f.payload)) {
		s := b[start+i*sectorBytes:][:sectorBytes]
		commit, room := f.commit, s[sectorHead:]
		if i == 0 {
			commit |= beginsFrame
			room = room[copy(room, head[:]):]
		}
		binary.LittleEndian.PutUint32(s[4:], uint32(f.at/sectorBytes)+uint32(i))
		binary.LittleEndian.PutUint64(s[8:], segment)
		binary.LittleEndian.PutUint64(s[16:], commit)
		rest = rest[copy(room, rest):]
		binary.LittleEndian.PutUint32(s, crc32.Checksum(s[4:], castagnoli))
	}
	return b
}

// frameLength returns the payload's length, given the content of the first sector.
func frameLength(content []byte) int { return int(binary.LittleEndian.Uint32(content)) }

// image is the content of a segment file or part of one.
type image struct {
	name   string // for error messages
	number uint64 // number of the segment
	base   int64  // position of b in the segment
	b      []byte
}

func (m *image) end() int64 { return m.base + int64(len(m.b)) }

// A sectorState describes what a sector contains.
type sectorState int

const (
	empty   sectorState = iota // zeros
	old                        // left over from before the file became this segment
	own                        // belongs to this segment
	damaged                    // anything else
)

// sector describes the sector at the given position. If the sector belongs to this segment, sector
// also returns its commit, whether it begins a frame, and its content.
func (m *image) sector(at int64) (state sectorState, commit uint64, first bool, content []byte) {
	s := m.b[at-m.base:][:sectorBytes]
	if bytes.Equal(s, emptySector[:]) {
		return empty, 0, false, nil
	}
	segment := binary.LittleEndian.Uint64(s[8:])
	if binary.LittleEndian.Uint32(s) != crc32.Checksum(s[4:], castagnoli) ||
		binary.LittleEndian.Uint32(s[4:]) != uint32(at/sectorBytes) || segment > m.number {
		return damaged, 0, false, nil
	}
	if segment < m.number {
		return old, 0, false, nil
	}
	commit = binary.LittleEndian.Uint64(s[16:])
	return own, commit &^ beginsFrame, commit&beginsFrame != 0, s[sectorHead:]
}

// has reports whether any sector is in the given state.
func (m *image) has(want sectorState) bool {
	for at := m.base; at+sectorBytes <= m.end(); at += sectorBytes {
		if state, _, _, _ := m.sector(at); state == want {
			return true
		}
	}
	return false
}

// frame returns the frame that begins at the given block. It returns false if there is no frame
// there or the frame is incomplete.
func (m *image) frame(at int64) (frame, bool) {
	if at+sectorBytes > m.end() {
		return frame{}, false
	}
	state, commit, first, content := m.sector(at)
	if state != own || !first {
		return frame{}, false
	}
	length := frameLength(content)
	f := frame{
		at: at, size: frameBytes(length),
		commit: commit, chain: binary.LittleEndian.Uint32(content[4:]),
	}
	if at+f.size > m.end() {
		return frame{}, false
	}
	f.payload = append(make([]byte, 0, sectorsOf(length)*sectorRoom), content[frameHead:]...)
	for i := 1; i < sectorsOf(length); i++ {
		state, c, first, content := m.sector(at + int64(i)*sectorBytes)
		if state != own || first || c != commit {
			return frame{}, false
		}
		f.payload = append(f.payload, content...)
	}
	f.payload = f.payload[:length]
	return f, true
}

// A cursor is the position after a commit. It determines where the next commit begins, and which
// commit it must follow.
type cursor struct {
	at     int64 // 0 in a segment without commits
	commit uint64
	chain  uint32
}

// frame returns the frame of the next commit.
func (c *cursor) frame(payload []byte) frame {
	return frame{
		at: c.at, size: frameBytes(len(payload)), commit: c.commit + 1,
		chain: crc32.Update(c.chain, castagnoli, payload), payload: payload,
	}
}

// pass moves the cursor past its next frame.
func (c *cursor) pass(f *frame) { c.at, c.commit, c.chain = f.at+f.size, f.commit, f.chain }

// next returns the frame at the cursor and moves the cursor past it. It returns false if there is
// no readable frame. It returns an error if the frame does not continue the previous one, or if
// anything follows the frame in its last block.
func (m *image) next(c *cursor) (frame, bool, error) {
	f, ok := m.frame(c.at)
	if !ok {
		return frame{}, false, nil
	}
	if want := c.frame(f.payload); f.commit != want.commit || f.chain != want.chain {
		return frame{}, false, m.damage(c.at,
			"commit %d does not continue commit %d", f.commit, c.commit)
	}
	end := f.at + int64(sectorsOf(len(f.payload)))*sectorBytes
	for at := end; at < f.at+f.size; at += sectorBytes {
		if state, _, _, _ := m.sector(at); state == own || state == damaged {
			return frame{}, false, m.damage(at, "a sector after commit %d is not empty", f.commit)
		}
	}
	c.pass(&f)
	return f, true, nil
}
