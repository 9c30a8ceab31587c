// Package backup defines the format of the files that "leasehold snapshot save" writes. A file
// contains the ID of the cluster, the chunks of a snapshot with checksums, and a SHA-256. Package
// fsm defines the contents of the chunks.
//
// The package also defines the format of a piece, which is a part of a copied log: the line
// "leasehold log 1"; the IDs of the cluster and of the restore (0 for none), 8 bytes each,
// big-endian; the index and the term of the entry before the first, as uvarints; the list of marks
// (index as a uvarint, time in milliseconds since 1970 as a varint); the list of entries (type in
// one byte, term as a uvarint, data preceded by its length); and the SHA-256 of everything before
// it. A list begins with its count, a uvarint. A mark states that the entries up to its index were
// committed by its time, according to the clock of the member that copied them. The last mark is
// for the last entry. Types and data are the same as in the log.
package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"strings"

	"leasehold.dev/internal/encoding"
)

// A backup consists of the magic line, then chunks, then a length of zero, then zeros up to the
// next sector boundary. Each chunk is a 4-byte length, the CRC32-C of its bytes, and the bytes. The
// version is in the magic line. All numbers are big-endian.
//
// A backup fetched through the API ends with the SHA-256 of everything before it. etcd clients
// detect the SHA-256 by the length of the file, which is then not a multiple of the sector size.
// That is why everything before it fills whole sectors.
//
// The first chunk is the ID of the cluster, in clusterChunk bytes. The remaining chunks contain the
// state.
const (
	magic  = "leasehold backup 1\n"
	sector = 512
)

// Version is the version of the format as shown to users.
const Version = "leasehold 1"

// clusterChunk is the length of the chunk that contains the ID of the cluster.
const clusterChunk = 8

// maxChunk is the maximum length of a chunk. It limits how much a corrupt length can make a reader
// read.
const maxChunk = 256 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrNotWhole means that a file is not a complete Leasehold backup.
var ErrNotWhole = errors.New("backup: not a complete backup")

// ErrChunk means that the checksum of a chunk is wrong. It wraps [ErrNotWhole]. The reader is
// positioned after the chunk, so Next can continue with the next chunk.
var ErrChunk = fmt.Errorf("%w: the checksum of a chunk does not match", ErrNotWhole)

// Write writes a backup of a cluster, without the SHA-256. encode writes the chunks of the state.
func Write(
	ctx context.Context, w io.Writer, cluster uint64,
	encode func(write func(chunk []byte) error) error,
) error {
	if _, err := io.WriteString(w, magic); err != nil {
		return err
	}
	size := int64(len(magic))
	write := func(chunk []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		var head [8]byte
		binary.BigEndian.PutUint32(head[:4], uint32(len(chunk)))
		binary.BigEndian.PutUint32(head[4:], crc32.Checksum(chunk, castagnoli))
		if _, err := w.Write(head[:]); err != nil {
			return err
		}
		size += int64(len(head) + len(chunk))
		_, err := w.Write(chunk)
		return err
	}
	err := write(binary.BigEndian.AppendUint64(nil, cluster))
	if err == nil {
		err = encode(write)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(make([]byte, 4+padding(size+4)))
	return err
}

// padding returns the number of zeros that complete the last sector.
func padding(size int64) int64 { return (sector - size%sector) % sector }

// Reader reads a backup. Call Next for each chunk, then Finish.
type Reader struct {
	r    io.Reader
	sum  hash.Hash // SHA-256 of the bytes read so far
	size int64     // number of bytes read so far
	at   int64     // start of the chunk that Next last returned

	cluster uint64 // cluster ID in the first chunk
}

// NewReader returns a Reader after reading and checking the first line.
func NewReader(r io.Reader) (*Reader, error) {
	b := &Reader{r: r, sum: sha256.New()}
	line := make([]byte, len(magic))
	n, err := io.ReadFull(r, line)
	if err != nil && !isEnd(err) {
		return nil, err
	}
	if string(line[:n]) == magic {
		b.took(line)
		return b, nil
	}
	if isNewer(string(line[:n])) {
		return nil, fmt.Errorf("%w: %w: it begins with %q", ErrNotWhole, encoding.ErrNewer, line[:n])
	}
	if isBolt(line[:n], r) {
		return nil, fmt.Errorf("%w: it is an etcd snapshot; restore it with leasehold snapshot "+
			"restore --from-etcd", ErrNotWhole)
	}
	return nil, fmt.Errorf("%w: it does not begin with %q", ErrNotWhole, magic)
}

// isNewer reports whether line is the first line of a later version of the format.
func isNewer(line string) bool {
	version, found := strings.CutPrefix(line, "leasehold backup ")
	return found && version > "1\n" && strings.Trim(version, "0123456789\n") == ""
}

// isBolt reports whether a file is a bbolt database, which etcd uses. It checks the number at byte
// 16 of the first page.
func isBolt(begin []byte, rest io.Reader) bool {
	more := make([]byte, 1)
	if _, err := io.ReadFull(rest, more); err != nil {
		return false
	}
	begin = append(begin, more...)
	return len(begin) >= 20 && binary.LittleEndian.Uint32(begin[16:]) == 0xED0CDAED
}

// Cluster returns the ID of the cluster. It is known once Next has returned a chunk.
func (b *Reader) Cluster() uint64 { return b.cluster }

// Size returns the number of bytes of the backup that have been read.
func (b *Reader) Size() int64 { return b.size }

// At returns the position of the chunk that Next last returned, or of the damaged chunk.
func (b *Reader) At() int64 { return b.at }

func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func (b *Reader) took(p []byte) {
	b.sum.Write(p)
	b.size += int64(len(p))
}

// read returns the next n bytes.
func (b *Reader) read(n int64) ([]byte, error) {
	// The buffer grows as data arrives, because the length may be corrupt.
	var buf bytes.Buffer
	buf.Grow(int(min(n, 64<<10)))
	switch _, err := io.CopyN(&buf, b.r, n); {
	case isEnd(err):
		return nil, fmt.Errorf("%w: it ends early, after %d bytes", ErrNotWhole,
			b.size+int64(buf.Len()))
	case err != nil:
		return nil, err
	}
	b.took(buf.Bytes())
	return buf.Bytes(), nil
}

// Next returns the next chunk of the state. It returns false after the last chunk. It can be passed
// to fsm.Restore.
func (b *Reader) Next() (chunk []byte, ok bool, err error) {
	at := b.size
	b.at = at
	head, err := b.read(4)
	if err != nil {
		return nil, false, err
	}
	n := binary.BigEndian.Uint32(head)
	if n == 0 {
		return nil, false, nil
	}
	if n > maxChunk {
		return nil, false, fmt.Errorf("%w: invalid chunk of %d bytes at byte %d", ErrNotWhole, n, at)
	}
	if head, err = b.read(4); err != nil {
		return nil, false, err
	}
	if chunk, err = b.read(int64(n)); err != nil {
		return nil, false, err
	}
	if crc32.Checksum(chunk, castagnoli) != binary.BigEndian.Uint32(head) {
		return nil, false, fmt.Errorf("%w: the chunk begins at byte %d", ErrChunk, at)
	}
	if at != int64(len(magic)) {
		return chunk, true, nil
	}
	if n != clusterChunk {
		return nil, false, fmt.Errorf("%w: its cluster ID is missing", ErrNotWhole)
	}
	b.cluster = binary.BigEndian.Uint64(chunk)
	return b.Next()
}

// Finish reads the end of the file, which follows the last chunk of the state. If needSum is false,
// the SHA-256 can be missing or wrong.
func (b *Reader) Finish(needSum bool) error {
	at := b.size
	switch _, more, err := b.Next(); {
	case err != nil:
		return err
	case more:
		return fmt.Errorf("%w: another chunk follows the last, at byte %d", ErrNotWhole, at)
	}
	zeros, err := b.read(padding(b.size))
	if err != nil {
		return err
	}
	if len(bytes.Trim(zeros, "\x00")) > 0 {
		return fmt.Errorf("%w: its padding contains nonzero bytes", ErrNotWhole)
	}
	sum := make([]byte, sha256.Size+1)
	n, err := io.ReadFull(b.r, sum)
	switch {
	case err == nil:
		return fmt.Errorf("%w: more bytes follow its end, at byte %d", ErrNotWhole,
			b.size+sha256.Size)
	case !isEnd(err):
		return err
	case !needSum:
		return nil
	case n == 0:
		return fmt.Errorf("%w: the SHA-256 at its end is missing", ErrNotWhole)
	case !bytes.Equal(sum[:n], b.sum.Sum(nil)):
		return fmt.Errorf("%w: the SHA-256 at its end does not match", ErrNotWhole)
	}
	return nil
}
