package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestLogFileNames: which files are logs and manifests.
func TestLogFileNames(t *testing.T) {
	for name, want := range map[string]logFile{
		"000012.log":      {name: "000012.log", log: true, number: 12, header: logHeader},
		"MANIFEST-000007": {name: "MANIFEST-000007", header: manifestHeader},
		"x.log":           {}, "000012.sst": {}, "marker.manifest.000001.MANIFEST-000007": {}, "LOCK": {},
	} {
		f, ok := parseLogFile(name)
		if ok != (want.name != "") || ok && f != want {
			t.Errorf("%s: %+v, %v", name, f, ok)
		}
	}
}

// An image is a log or manifest in Pebble's form.
type image struct {
	logFile
	b []byte
}

func newImage(name string, header int) *image {
	f, ok := parseLogFile(name)
	if !ok {
		panic(name)
	}
	f.header = header
	return &image{logFile: f}
}

// least is the smallest type of the image's chunks.
func (m *image) least() byte {
	return map[int]byte{manifestHeader: 1, firstLogHeader: 5, logHeader: 9}[m.header]
}

// add adds a chunk with so many bytes of data, which says up to where the log was synced before.
func (m *image) add(data int, synced int64) {
	b := make([]byte, m.header, m.header+data)
	binary.LittleEndian.PutUint16(b[4:], uint16(data))
	b[6] = m.least()
	if m.log {
		binary.LittleEndian.PutUint32(b[7:], m.number)
	}
	if m.header == logHeader {
		binary.LittleEndian.PutUint64(b[11:], uint64(synced))
	}
	m.b = append(m.b, sum(append(b, bytes.Repeat([]byte("x"), data)...))...)
}

// sum puts the right checksum into a chunk.
func sum(b []byte) []byte {
	sum := crc32.Checksum(b[6:], castagnoli)
	binary.LittleEndian.PutUint32(b, sum>>15|sum<<17+0xa282ead8)
	return b
}

// fill adds a chunk that leaves so many bytes of the block.
func (m *image) fill(left int) {
	m.add(logBlock-len(m.b)%logBlock-left-m.header, 0)
}

// want checks the image, of which end bytes were synced. It is sound, or the error says words.
func (m *image) want(t *testing.T, name string, end int, words string) {
	t.Helper()
	f, _ := parseLogFile(m.name)
	err := f.check(bytes.NewReader(m.b), int64(end))
	switch {
	case words == "" && err == nil:
	case words == "" || !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), words):
		t.Errorf("%s, %d bytes synced: %v, want %q", name, end, err, words)
	}
}

// TestLogChunks: a chunk is one of the four types, of this log, whole, and with its checksum. It
// may have no data.
func TestLogChunks(t *testing.T) {
	for name, header := range map[string]int{
		"MANIFEST-000001": manifestHeader, "000001.log": firstLogHeader, "000002.log": logHeader,
	} {
		m := newImage(name, header)
		for _, data := range []int{0, 100} {
			m.b = nil
			m.add(data, 77)
			length := len(m.b)
			for kind := range 16 {
				b := slices.Clone(m.b)
				b[6] = byte(kind)
				want := 0
				if m.least() <= b[6] && b[6] < m.least()+4 {
					want = length
				}
				n, synced := m.chunk(sum(b))
				if n != want || synced > 0 != (n > 0 && header == logHeader) {
					t.Errorf("%s: a chunk of type %d: %d bytes, synced to %d", name, kind, n, synced)
				}
			}
			if n, _ := m.chunk(append(slices.Clone(m.b), 1)); n != length {
				t.Errorf("%s: %d bytes and one more: %d", name, length, n)
			}
			if n, _ := m.chunk(m.b[:length-1]); n != 0 {
				t.Errorf("%s: all but a byte: %d", name, n)
			}
			if !m.log {
				continue
			}
			m.b[7]++
			if n, _ := m.chunk(sum(m.b)); n != 0 {
				t.Errorf("%s: a chunk of another log is taken", name)
			}
		}
	}
}

// TestLogBlocks: a chunk may end a block, with data or without. What is left of one must be zero.
func TestLogBlocks(t *testing.T) {
	for name, header := range map[string]int{
		"MANIFEST-000001": manifestHeader, "000001.log": firstLogHeader, "000002.log": logHeader,
	} {
		for _, left := range []int{0, 1, header - 1, header} {
			m := newImage(name, header)
			m.fill(left)
			if left == header {
				m.add(0, 0)
			} else {
				m.b = append(m.b, make([]byte, left)...)
			}
			m.add(50, 0)
			what := fmt.Sprintf("%s, %d bytes left", name, left)
			m.want(t, what, len(m.b), "")
			m.b[logBlock+20] ^= 1
			m.want(t, what+", damaged after it", len(m.b), fmt.Sprintf("damaged at byte %d:", logBlock))
			m.want(t, what+", torn after it", logBlock, "")
			m.b[logBlock+20] ^= 1
			if left == 0 {
				continue
			}
			at := logBlock - 1
			m.b[at] ^= 1
			if left == header {
				at -= header - 1
			}
			m.want(t, what+", damaged there", len(m.b), fmt.Sprintf("damaged at byte %d:", at))
		}
	}
	for n := range 20 {
		m := newImage("000002.log", logHeader)
		m.b = make([]byte, n)
		m.want(t, "a log that is hardly begun", 0, "")
	}
}

// TestLogTrailer: damage of the header that ends a closed log loses nothing, if it is there. In a
// manifest there is none, and what comes before or after is not covered by it.
func TestLogTrailer(t *testing.T) {
	log := newImage("000002.log", logHeader)
	log.add(100, 0)
	at := len(log.b)
	log.b = append(log.b, make([]byte, logTrailer)...)
	log.want(t, "the trailer", at+logTrailer, "")
	log.want(t, "before the trailer", at+logTrailer-1, fmt.Sprintf("damaged at byte %d:", at))
	log.want(t, "after the trailer", at+logTrailer+1, fmt.Sprintf("damaged at byte %d:", at))
	short := *log
	short.b = log.b[:at+5]
	short.want(t, "half of the trailer", at+logTrailer, fmt.Sprintf("damaged at byte %d:", at+5))
	log.add(20, int64(at+logTrailer))
	log.want(t, "a chunk that knows of the trailer", at+logTrailer, "")
	log.add(20, int64(at+logTrailer+1))
	log.want(t, "a chunk that knows of more", at+logTrailer,
		fmt.Sprintf("damaged at byte %d: later records", at+logTrailer))

	sound := newImage("000002.log", logHeader)
	sound.add(100, 0)
	at = len(sound.b)
	sound.add(100, 0)
	sound.add(100, int64(len(sound.b)))
	sound.want(t, "a sound chunk as far from the end", at+logTrailer, "")

	manifest := newImage("MANIFEST-000001", manifestHeader)
	manifest.add(100, 0)
	at = len(manifest.b)
	manifest.b = append(manifest.b, make([]byte, logTrailer)...)
	manifest.want(t, "a manifest", at+logTrailer, fmt.Sprintf("damaged at byte %d:", at))
}

// TestLogPromised: what was not synced for all that is known may be torn, unless a later chunk of
// the same block says that it was synced, in whatever block.
func TestLogPromised(t *testing.T) {
	for _, first := range []bool{true, false} {
		m := newImage("000002.log", logHeader)
		m.add(100, 0)
		if !first {
			m.fill(0)
		}
		at := len(m.b)
		m.add(100, 0)
		for i := at; i < len(m.b); i++ {
			m.b[i] = 0
		}
		m.want(t, "lost", at, "")
		m.add(100, int64(at))
		m.want(t, "lost, and what follows does not know of it", at, "")
		m.add(100, int64(at)+1)
		m.want(t, "lost, and what follows knows of it", at,
			fmt.Sprintf("damaged at byte %d: later records", at))
	}
}

// TestLogUnreadable: an error of reading is not taken for damage, nor for the end.
func TestLogUnreadable(t *testing.T) {
	m := newImage("000002.log", logHeader)
	m.add(100, 0)
	r := io.MultiReader(bytes.NewReader(m.b), iotest.ErrReader(syscall.EIO))
	if err := m.check(r, 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("a read error: %v", err)
	}
	for _, kind := range []errorfs.OpKind{errorfs.OpList, errorfs.OpOpen} {
		told := newToldFS()
		mustClose(t, mustCreate(t, told, "000002.log"))
		told.fail = func(op errorfs.Op) error {
			if op.Kind == kind {
				return syscall.EIO
			}
			return nil
		}
		d := &Disk{fs: told}
		if err := d.checkLogs(nil); !errors.Is(err, syscall.EIO) {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
}

// TestListedFiles: a log that the ledger names is there, and is read up to where it says, and no
// file stays open. A manifest may be gone: the ledger may have it before its name is durable.
func TestListedFiles(t *testing.T) {
	mem := &countedFS{FS: vfs.NewMem()}
	m := newImage("000002.log", logHeader)
	m.add(100, 0)
	f := mustCreate(t, mem, m.name)
	if _, err := f.Write(m.b); err != nil {
		t.Fatal(err)
	}
	mustClose(t, f)
	mustClose(t, mustCreate(t, mem, "000003.sst"))
	d := &Disk{fs: mem}
	for _, c := range []struct {
		known []ledgerLine
		words string
	}{
		{nil, ""},
		{[]ledgerLine{{m.name, int64(len(m.b))}, {"MANIFEST-000001", 50}}, ""},
		{[]ledgerLine{{m.name, int64(len(m.b)) + 1}}, "000002.log is damaged"},
		{[]ledgerLine{{"000001.log", 5}}, "000001.log is missing: 5 bytes"},
	} {
		err := d.checkLogs(c.known)
		if c.words == "" && err != nil ||
			c.words != "" && (!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.words)) {
			t.Errorf("%v: %v, want %q", c.known, err, c.words)
		}
	}
	if mem.open.Load() > 0 || mem.opened.Load() != 5 {
		t.Errorf("%d files were opened, %d are open", mem.opened.Load(), mem.open.Load())
	}
}
