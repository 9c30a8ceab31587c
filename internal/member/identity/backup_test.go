package identity

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// These constants define the backup format documented in docs/formats.md.
const (
	backupMagic    = "leasehold backup 1\n"
	backupSector   = 512
	maxBackupChunk = 256 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// padded returns a backup's body with zeros appended up to a multiple of the sector size.
func padded(body []byte) []byte {
	return append(body, make([]byte, -len(body)&(backupSector-1))...)
}

// machineWith returns a state with leases, keys and n values of 100 kB.
func machineWith(t testing.TB, n int) *fsm.Machine {
	t.Helper()
	m := fsm.New(config().Machine)
	m.Begin(1, 1)
	m.AddMember(fsm.Member{ID: 1, Name: "old"})
	do := func(c fsm.Command) {
		t.Helper()
		if r := m.Apply(c); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	for i := range 3 {
		do(&fsm.Grant{Terms: lease.Terms{ID: lease.ID(i + 1), TTL: 60_000}})
		do(&fsm.Put{Key: fmt.Sprint("k", i), Value: []byte("v"), Lease: lease.ID(i + 1)})
	}
	do(&fsm.DeleteRange{Key: "k2"})
	for i := range n {
		do(&fsm.Put{Key: fmt.Sprint("large", i), Value: make([]byte, 100<<10)})
	}
	return m
}

// backupOf returns a backup in the form sent by the API.
func backupOf(t testing.TB, m *fsm.Machine) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := backup.Write(t.Context(), &b, 7, m.Image().Encode); err != nil {
		t.Fatal(err)
	}
	return sealed(b.Bytes())
}

// sealed returns body followed by its SHA-256.
func sealed(body []byte) []byte {
	sum := sha256.Sum256(body)
	return append(slices.Clip(body), sum[:]...)
}

// read reads a backup as Restore does.
func read(b []byte, o RestoreOptions) error {
	_, _, err := readBackup(bytes.NewReader(b), config(), o, fsm.Restoration{})
	return err
}

func readAll(r io.Reader) error {
	_, _, err := readBackup(r, config(), RestoreOptions{}, fsm.Restoration{})
	return err
}

// TestBackupIsWholeSectors checks the length of a backup, which etcd clients use to recognize a
// complete snapshot.
func TestBackupIsWholeSectors(t *testing.T) {
	for n := range 3 {
		if b := backupOf(t, machineWith(t, n)); len(b)%512 != sha256.Size {
			t.Errorf("%d large values: %d bytes, %d over whole sectors", n, len(b), len(b)%512)
		}
	}
}

// TestBackupOfAnyLengthIsRead checks that the end of a backup is found no matter where in a sector
// the last chunk ends.
func TestBackupOfAnyLengthIsRead(t *testing.T) {
	for n := range backupSector + 1 {
		m := machineWith(t, 0)
		m.Apply(&fsm.Put{Key: "filler", Value: make([]byte, n)})
		b := backupOf(t, m)
		if err := read(b, RestoreOptions{}); err != nil {
			t.Errorf("a value of %d bytes: %v", n, err)
		}
		bare := b[:len(b)-sha256.Size]
		if err := read(bare, RestoreOptions{SkipHash: true}); err != nil {
			t.Errorf("a value of %d bytes, without the SHA-256: %v", n, err)
		}
		if err := read(append(bare, make([]byte, backupSector)...), RestoreOptions{}); err == nil {
			t.Errorf("a value of %d bytes: a backup that is too long was read", n)
		}
	}
}

// TestChangedBackupIsRefused checks that a backup with any changed byte is rejected, even with a
// recomputed hash.
func TestChangedBackupIsRefused(t *testing.T) {
	good := backupOf(t, machineWith(t, 0))
	if err := read(good, RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := readAll(bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	body := len(good) - sha256.Size
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 1 << (i % 8)
		if err := read(bad, RestoreOptions{}); !errors.Is(err, backup.ErrNotWhole) {
			t.Errorf("byte %d changed: error %v", i, err)
		}
		err := read(bad, RestoreOptions{SkipHash: true})
		if i < body && !errors.Is(err, backup.ErrNotWhole) || i >= body && err != nil {
			t.Errorf("byte %d changed, hash skipped: error %v", i, err)
		}
		if err := readAll(bytes.NewReader(bad)); !errors.Is(err, backup.ErrNotWhole) {
			t.Errorf("byte %d changed: status says %v", i, err)
		}
		if i >= body {
			continue
		}
		if err := read(sealed(bad[:body]), RestoreOptions{}); !errors.Is(err, backup.ErrNotWhole) {
			t.Errorf("byte %d changed, SHA-256 made anew: error %v", i, err)
		}
	}
}

// borders returns the offsets at which the chunks of a backup begin, and the end of the last one.
func borders(b []byte) []int {
	at := []int{0, len(backupMagic)}
	for i := len(backupMagic); ; {
		n := int(binary.BigEndian.Uint32(b[i:]))
		if n == 0 {
			return append(at, i+4)
		}
		i += 8 + n
		at = append(at, i)
	}
}

// TestCutBackupIsRefused truncates a backup at and near each chunk border. It must be rejected each
// time, with or without a recomputed SHA-256.
func TestCutBackupIsRefused(t *testing.T) {
	good := backupOf(t, machineWith(t, 40))
	all := borders(good)
	if len(all) < 6 {
		t.Fatalf("%d borders; the test needs several chunks", len(all))
	}
	all = append(all, len(good)-sha256.Size, len(good)-1)
	for _, border := range all {
		for _, at := range []int{border - 1, border, border + 1, border + 4, border + 8} {
			if at < 0 || at >= len(good) {
				continue
			}
			cut := good[:at]
			if err := read(cut, RestoreOptions{}); !errors.Is(err, backup.ErrNotWhole) {
				t.Errorf("cut at %d: error %v", at, err)
			}
			if at == len(good)-sha256.Size {
				continue // only the SHA-256 is missing, and sealing restores it
			}
			if err := read(sealed(cut), RestoreOptions{}); !errors.Is(err, backup.ErrNotWhole) {
				t.Errorf("cut at %d and sealed: error %v", at, err)
			}
			whole := at > len(good)-sha256.Size // complete except for the SHA-256
			err := read(cut, RestoreOptions{SkipHash: true})
			if whole && err != nil || !whole && !errors.Is(err, backup.ErrNotWhole) {
				t.Errorf("cut at %d, hash skipped: error %v", at, err)
			}
		}
	}
	// A missing, duplicate or misplaced chunk is detected as well, even though the checksum of each
	// chunk is correct.
	all = borders(good)
	end := all[len(all)-1]
	for i := 1; i+2 < len(all); i++ {
		before, chunk, after := good[:all[i]], good[all[i]:all[i+1]], good[all[i+1]:end]
		for name, body := range map[string][]byte{
			"missing": slices.Concat(before, after),
			"doubled": slices.Concat(before, chunk, chunk, after),
			"later":   slices.Concat(before, after[:len(after)-4], chunk, after[len(after)-4:]),
		} {
			if name == "later" && i+3 == len(all) {
				continue // the last chunk is in its proper place
			}
			if err := read(sealed(padded(body)), RestoreOptions{}); !errors.Is(err, backup.ErrNotWhole) {
				t.Errorf("chunk %d %s: error %v", i, name, err)
			}
		}
	}
}

// TestBackupThatCannotBeRead checks that a read error is returned as such, and not reported as a
// damaged backup.
func TestBackupThatCannotBeRead(t *testing.T) {
	good := backupOf(t, machineWith(t, 0))
	failing := errors.New("input/output error")
	for _, at := range []int{0, 5, len(backupMagic), 100, len(good) - 100, len(good) - 5} {
		r := &failAfter{bytes.NewReader(good[:at]), failing}
		_, _, err := readBackup(r, config(), RestoreOptions{}, fsm.Restoration{})
		if !errors.Is(err, failing) || errors.Is(err, backup.ErrNotWhole) {
			t.Errorf("failing at %d: %v", at, err)
		}
	}
	slow := iotest.OneByteReader(bytes.NewReader(good))
	if err := readAll(slow); err != nil {
		t.Errorf("read byte by byte: %v", err)
	}
}

// failAfter returns an error instead of io.EOF.
type failAfter struct {
	r   *bytes.Reader
	err error
}

func (f *failAfter) Read(p []byte) (int, error) {
	if f.r.Len() == 0 {
		return 0, f.err
	}
	return f.r.Read(p)
}

// TestNoBackup checks that the error for input that is not a backup explains what is wrong or what
// to do.
func TestNoBackup(t *testing.T) {
	bolt := make([]byte, 4096)
	copy(bolt[16:], "\xed\xda\x0c\xed")
	huge := binary.BigEndian.AppendUint32([]byte(backupMagic), 1<<31)
	cut := binary.BigEndian.AppendUint32([]byte(backupMagic), maxBackupChunk)
	cut = append(cut, 1, 2, 3, 4, 5)
	good := backupOf(t, machineWith(t, 0))
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"etcd's", bolt, "restore --from-etcd"},
		{"nothing", nil, "does not begin with"},
		{"text", []byte("hello"), "does not begin with"},
		{"another version", []byte("leasehold backup 2\n\x00\x00\x00\x00"), "a newer release"},
		{"a huge chunk", huge, "invalid chunk of 2147483648 bytes at byte 19"},
		{"a chunk that is not there", cut, "ends early, after 28 bytes"},
		{"more after the end", append(slices.Clip(good), 0), "more bytes follow"},
		{"no SHA-256", good[:len(good)-sha256.Size], "SHA-256 at its end is missing"},
		{"no chunks", sealed(make512(backupMagic)), "snapshot has no header"},
	} {
		err := read(c.b, RestoreOptions{})
		if !errors.Is(err, backup.ErrNotWhole) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// make512 returns a sector that begins with s.
func make512(s string) []byte { return append([]byte(s), make([]byte, 512-len(s))...) }

// FuzzBackupReader checks that the reader accepts only complete backups. For other input, the only
// possible errors are ErrNotWhole and the errors for a state that is damaged or from a newer
// release.
func FuzzBackupReader(f *testing.F) {
	good := backupOf(f, machineWith(f, 0))
	f.Add(good)
	f.Add(good[:len(good)-32])
	f.Add([]byte(backupMagic))
	f.Add(make512(backupMagic))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		// Correcting the checksums lets the fuzzer reach the code behind them.
		for _, body := range [][]byte{b, resummed(b)} {
			r, err := backup.NewReader(bytes.NewReader(body))
			if err == nil {
				var m *fsm.Machine
				if m, err = fsm.Restore(fsm.Config{}, r.Next); err == nil {
					err = r.Finish(false)
				} else if !errors.Is(err, fsm.ErrCorrupt) && !errors.Is(err, backup.ErrNotWhole) &&
					!errors.Is(err, encoding.ErrNewer) {
					t.Fatalf("error of another kind: %v", err)
				} else {
					continue
				}
				if err == nil { // a restored state can be saved and restored again
					if serr := read(backupOf(t, m), RestoreOptions{}); serr != nil {
						t.Fatalf("restored, but not again: %v", serr)
					}
				}
			}
			if err != nil && !errors.Is(err, backup.ErrNotWhole) {
				t.Fatalf("error of another kind: %v", err)
			}
		}
	})
}

// resummed returns b with the checksums of its chunks corrected.
func resummed(b []byte) []byte {
	b = slices.Clone(b)
	for i := len(backupMagic); i+8 <= len(b); {
		n := int(binary.BigEndian.Uint32(b[i:]))
		if n == 0 || n > len(b)-i-8 {
			break
		}
		binary.BigEndian.PutUint32(b[i+4:], crc32.Checksum(b[i+8:i+8+n], castagnoli))
		i += 8 + n
	}
	return b
}
