package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"leasehold.dev/internal/fsm"
)

// A backup is the magic line, then chunks, each a 4-byte length, the
// CRC32-C of its bytes and the bytes, then a length of zero. The version is in
// the magic line. All numbers are big-endian.
const backupMagic = "leasehold backup 1\n"

// maxBackupChunk bounds what a corrupt length can make a reader allocate.
const maxBackupChunk = 256 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrBackup means that a file is not a whole backup of this service.
var ErrBackup = errors.New("server: not a whole backup")

func writeBackup(ctx context.Context, w io.Writer, image *fsm.Image) error {
	if _, err := io.WriteString(w, backupMagic); err != nil {
		return err
	}
	err := image.Encode(func(chunk []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		var head [8]byte
		binary.BigEndian.PutUint32(head[:4], uint32(len(chunk)))
		binary.BigEndian.PutUint32(head[4:], crc32.Checksum(chunk, castagnoli))
		if _, err := w.Write(head[:]); err != nil {
			return err
		}
		_, err := w.Write(chunk)
		return err
	})
	if err != nil {
		return err
	}
	_, err = w.Write(make([]byte, 4))
	return err
}

// backupReader reads the chunks of a backup.
type backupReader struct{ r io.Reader }

func newBackupReader(r io.Reader) (*backupReader, error) {
	magic := make([]byte, len(backupMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != backupMagic {
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrBackup, backupMagic)
	}
	return &backupReader{r}, nil
}

// next has the form that fsm.Restore takes.
func (b *backupReader) next() (chunk []byte, ok bool, err error) {
	var head [4]byte
	if _, err := io.ReadFull(b.r, head[:]); err != nil {
		return nil, false, fmt.Errorf("%w: it ends early", ErrBackup)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 {
		return nil, false, nil
	}
	if n > maxBackupChunk {
		return nil, false, fmt.Errorf("%w: a chunk of %d bytes", ErrBackup, n)
	}
	if _, err := io.ReadFull(b.r, head[:]); err != nil {
		return nil, false, fmt.Errorf("%w: it ends early", ErrBackup)
	}
	chunk = make([]byte, n)
	if _, err := io.ReadFull(b.r, chunk); err != nil {
		return nil, false, fmt.Errorf("%w: it ends early", ErrBackup)
	}
	if crc32.Checksum(chunk, castagnoli) != binary.BigEndian.Uint32(head[:]) {
		return nil, false, fmt.Errorf("%w: a checksum does not match", ErrBackup)
	}
	return chunk, true, nil
}
