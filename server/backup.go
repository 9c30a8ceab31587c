package server

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

	"leasehold.dev/internal/fsm"
)

// A backup is the magic line, then chunks, each a 4-byte length, the
// CRC32-C of its bytes and the bytes, then a length of zero, then zeros up to
// the next multiple of a sector. The version is in the magic line. All numbers
// are big-endian.
//
// A backup that was fetched through the API ends with the SHA-256 of all that
// comes before. Clients of etcd recognise that by the odd length, hence the
// whole sectors.
//
// The first chunk is the ID of the cluster, in clusterChunk bytes; those after it are the state.
const (
	backupMagic   = "leasehold backup 1\n"
	backupVersion = "leasehold 1" // as shown to people
	backupSector  = 512
)

// clusterChunk is the length of the chunk that holds the ID of the cluster.
const clusterChunk = 8

// maxBackupChunk bounds what a corrupt length can make a reader read.
const maxBackupChunk = 256 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrBackup means that a file is not a whole backup of this service.
var ErrBackup = errors.New("server: not a whole backup")

// writeBackup writes an image as a backup, without the SHA-256.
func writeBackup(ctx context.Context, w io.Writer, cluster uint64, image *fsm.Image) error {
	if _, err := io.WriteString(w, backupMagic); err != nil {
		return err
	}
	size := int64(len(backupMagic))
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
		err = image.Encode(write)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(make([]byte, 4+padding(size+4)))
	return err
}

// padding is how many zeros make size whole sectors.
func padding(size int64) int64 { return (backupSector - size%backupSector) % backupSector }

// backupReader reads a backup: first the chunks with next, then finish.
type backupReader struct {
	r    io.Reader
	sum  hash.Hash // of what was read
	size int64     // of what was read

	cluster uint64 // of the first chunk
}

// newBackupReader reads the magic line.
func newBackupReader(r io.Reader) (*backupReader, error) {
	b := &backupReader{r: r, sum: sha256.New()}
	magic := make([]byte, len(backupMagic))
	n, err := io.ReadFull(r, magic)
	if err != nil && !isEnd(err) {
		return nil, err
	}
	if string(magic[:n]) == backupMagic {
		b.took(magic)
		return b, nil
	}
	if isBolt(magic[:n], r) {
		return nil, fmt.Errorf("%w: it is a snapshot of etcd, whose files cannot be restored here; "+
			"restore it to an etcd and copy its keys from there to a running member, for example "+
			"with etcdctl make-mirror (leases do not come along)", ErrBackup)
	}
	return nil, fmt.Errorf("%w: it does not begin with %q", ErrBackup, backupMagic)
}

// isBolt tells a file of bbolt, etcd's store, by the number at byte 16 of its
// first page.
func isBolt(begin []byte, rest io.Reader) bool {
	more := make([]byte, 1)
	if _, err := io.ReadFull(rest, more); err != nil {
		return false
	}
	begin = append(begin, more...)
	return len(begin) >= 20 && binary.LittleEndian.Uint32(begin[16:]) == 0xED0CDAED
}

func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func (b *backupReader) took(p []byte) {
	b.sum.Write(p)
	b.size += int64(len(p))
}

// read returns the next n bytes.
func (b *backupReader) read(n int64) ([]byte, error) {
	// The buffer grows with what is really there: a length may be corrupt.
	var buf bytes.Buffer
	buf.Grow(int(min(n, 64<<10)))
	switch _, err := io.CopyN(&buf, b.r, n); {
	case isEnd(err):
		return nil, fmt.Errorf("%w: it ends early, after %d bytes", ErrBackup,
			b.size+int64(buf.Len()))
	case err != nil:
		return nil, err
	}
	b.took(buf.Bytes())
	return buf.Bytes(), nil
}

// next has the form that fsm.Restore takes.
func (b *backupReader) next() (chunk []byte, ok bool, err error) {
	at := b.size
	head, err := b.read(4)
	if err != nil {
		return nil, false, err
	}
	n := binary.BigEndian.Uint32(head)
	if n == 0 {
		return nil, false, nil
	}
	if n > maxBackupChunk {
		return nil, false, fmt.Errorf("%w: a chunk of %d bytes at byte %d", ErrBackup, n, at)
	}
	if head, err = b.read(4); err != nil {
		return nil, false, err
	}
	if chunk, err = b.read(int64(n)); err != nil {
		return nil, false, err
	}
	if crc32.Checksum(chunk, castagnoli) != binary.BigEndian.Uint32(head) {
		return nil, false, fmt.Errorf("%w: the checksum of the chunk at byte %d does not match",
			ErrBackup, at)
	}
	if at != int64(len(backupMagic)) {
		return chunk, true, nil
	}
	if n != clusterChunk {
		return nil, false, fmt.Errorf("%w: it does not say of which cluster it is", ErrBackup)
	}
	b.cluster = binary.BigEndian.Uint64(chunk)
	return b.next()
}

// finish reads what follows the last chunk that the state is in. Without needSum the
// SHA-256 may be missing or wrong.
func (b *backupReader) finish(needSum bool) error {
	at := b.size
	switch _, more, err := b.next(); {
	case err != nil:
		return err
	case more:
		return fmt.Errorf("%w: another chunk follows the last, at byte %d", ErrBackup, at)
	}
	zeros, err := b.read(padding(b.size))
	if err != nil {
		return err
	}
	if len(bytes.Trim(zeros, "\x00")) > 0 {
		return fmt.Errorf("%w: bytes other than zero at its end", ErrBackup)
	}
	sum := make([]byte, sha256.Size+1)
	n, err := io.ReadFull(b.r, sum)
	switch {
	case err == nil:
		return fmt.Errorf("%w: more bytes follow its end, at byte %d", ErrBackup,
			b.size+sha256.Size)
	case !isEnd(err):
		return err
	case !needSum:
		return nil
	case n == 0:
		return fmt.Errorf("%w: the SHA-256 at its end is missing", ErrBackup)
	case !bytes.Equal(sum[:n], b.sum.Sum(nil)):
		return fmt.Errorf("%w: the SHA-256 at its end does not match", ErrBackup)
	}
	return nil
}

// BackupInfo is what a backup holds.
type BackupInfo struct {
	// Version is the format's, "leasehold 1".
	Version string
	// Revision is the newest; Compacted the oldest that can be read, 0 if nothing
	// was ever compacted.
	Revision, Compacted int64
	// Keys and Leases count what lives, history not included.
	Keys, Leases int
	// Bytes is the length of the backup without the SHA-256.
	Bytes int64
	// Hash is of the whole state. Two backups with the same hash hold the same.
	Hash uint32
}

// BackupStatus reads a backup to its end and tells what it holds. All is checked as
// [Restore] does, also the SHA-256 at the end; what is not a whole backup is an [ErrBackup].
// It takes as much memory as the state.
func BackupStatus(r io.Reader) (BackupInfo, error) {
	b, err := newBackupReader(r)
	if err != nil {
		return BackupInfo{}, err
	}
	c := machineConfig(DefaultConfig())
	c.Versions.Oldest = 1 // nobody goes on with it
	m, err := fsm.Restore(c, b.next)
	if err != nil {
		return BackupInfo{}, asBackupError(err)
	}
	if err := b.finish(true); err != nil {
		return BackupInfo{}, err
	}
	image := m.Image()
	sum, err := image.Hash()
	if err != nil {
		return BackupInfo{}, err
	}
	return BackupInfo{
		Version: backupVersion, Revision: image.View.KV.Revision(),
		Compacted: image.View.KV.Compacted(), Keys: image.View.KV.Len(),
		Leases: m.Lessor().Len(), Bytes: b.size, Hash: sum,
	}, nil
}

// asBackupError says of what is in no state's encoding that it is no backup.
func asBackupError(err error) error {
	if errors.Is(err, fsm.ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrBackup, err)
	}
	return err
}
