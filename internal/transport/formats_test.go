package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"leasehold.dev/test/virtual"
)

// A stream has the newest format that both ends speak, whichever is newer; ends without a common
// one refuse each other, and both report what they speak. Each of three versions speaks its own
// format and the one before; messages and a snapshot go both ways.
func TestFormats(t *testing.T) {
	first, second, third := Formats{1, 1}, Formats{1, 2}, Formats{2, 3}
	for _, c := range []struct {
		a, b Formats
		want uint8
	}{
		{first, first, 1},
		{first, second, 1},
		{second, second, 2},
		{second, third, 2},
		{third, third, 3},
		{first, third, 0},
	} {
		bubble(t, c.a.String()+" and "+c.b.String(), func(t *testing.T) {
			a, b := start(t, 1, options{formats: c.a}), start(t, 2, options{formats: c.b})
			a.Update([]Peer{a.peer(1), b.peer(2)})
			b.Update([]Peer{a.peer(1), b.peer(2)})
			for _, way := range [][2]*member{{a, b}, {b, a}} {
				from, to := way[0], way[1]
				if c.want == 0 {
					words := "this one speaks " + to.cfg.Formats.String()
					until(t, words, func() bool { return from.log.Count(words) > 0 })
					err := from.sendSnapshotTo(t.Context(), to.cfg.Self, nil, chunks(1, 1))
					if !errors.Is(err, errFormats) {
						t.Errorf("snapshot: %v", err)
					}
					continue
				}
				from.meet(to, "hello")
				if got := from.format(to.cfg.Self); got != c.want {
					t.Errorf("format %d, want %d", got, c.want)
				}
				to.recorder.snapshot = allOf
				err := from.sendSnapshotTo(t.Context(), to.cfg.Self, []byte("header"), chunks(3, 9))
				if err != nil {
					t.Errorf("snapshot: %v", err)
				}
			}
		})
	}
}

// The opening member announces its formats and cluster version, and is refused with an explanation
// if it does not speak the cluster's.
func TestForeignVersion(t *testing.T) { virtual.Test(t, testForeignVersion) }

func testForeignVersion(t *testing.T) {
	a, b := start(t, 1, options{formats: Formats{1, 2}}), start(t, 2, options{})
	refusal := fmt.Errorf("run 0.2: %w", ErrVersion)
	b.admit.Store(&refusal)
	a.Update([]Peer{b.peer(2)})
	if said := want(t, a.foreign); !strings.Contains(said, "run 0.2") {
		t.Errorf("it was told %q", said)
	}
	want := Visitor{Member: 1, Incarnation: 101, Formats: Formats{1, 2}, Version: 1, Decided: 201}
	if v := b.visitor.Load(); *v != want {
		t.Errorf("the visitor is %+v", v)
	}
	if err := a.sendSnapshot(t.Context(), nil, chunks(1, 1)); !errors.Is(err, ErrVersion) {
		t.Errorf("snapshot: %v", err)
	}
}

// A stream with a missing or wrong cluster version is refused.
func TestVersionOfStrangers(t *testing.T) {
	for _, texts := range [][]string{nil, {""}, {"1"}, {"x 1"}, {"256 1"}, {"1 1", "1 1"}} {
		var h hello
		if err := h.readVersion(metadata.MD{keyVersion: texts}); err == nil {
			t.Errorf("%q was read as %+v", texts, h)
		}
	}
}

// format returns that of the connection to another member.
func (m *member) format(to uint64) uint8 {
	l := m.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return 0
	}
	return l.out.format
}

// A stream with missing or wrong formats is refused, and a frame of another format than its
// stream's is not read.
func TestFormatsOfStrangers(t *testing.T) {
	for _, text := range []string{"", "1", "0 1", "2 1", "1 256", "-1 2", "x y"} {
		if f, err := parseFormats(text); err == nil {
			t.Errorf("%q was read as %v", text, f)
		}
	}
	frame, err := single(2, []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unwrap(1, frame.data); !errors.Is(err, errCorrupt) {
		t.Errorf("a frame of another format: %v", err)
	}
}

// No text makes the parser of formats panic, and what is written is read.
func FuzzFormats(f *testing.F) {
	f.Add("1 1")
	f.Add("1 2")
	f.Fuzz(func(t *testing.T, text string) {
		formats, err := parseFormats(text)
		if err != nil {
			return
		}
		if again, err := parseFormats(formats.wire()); err != nil || again != formats {
			t.Fatalf("%q reads as %v, then as %v, %v", text, formats, again, err)
		}
	})
}

// allOf takes a snapshot and keeps nothing.
func allOf(_ context.Context, _ uint64, _ []byte, next func() ([]byte, error)) error {
	for {
		if _, err := next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
