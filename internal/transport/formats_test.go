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

// TestFormats checks that a stream uses the newest format that both ends support, regardless of
// which end is newer. Two ends without a common format refuse each other, and both report which
// formats they support. Each of three versions supports its own format and the previous one.
// Messages and a snapshot are sent in both directions.
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
					words := "this one supports " + to.cfg.Formats.String()
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

// TestForeignVersion checks that a member that opens a stream announces its formats and cluster
// version. It is refused with an explanation if it does not support the cluster version.
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

// TestVersionOfStrangers checks that a stream with a missing or invalid cluster version is refused.
func TestVersionOfStrangers(t *testing.T) {
	for _, texts := range [][]string{nil, {""}, {"1"}, {"x 1"}, {"256 1"}, {"1 1", "1 1"}} {
		var h hello
		if err := h.readVersion(metadata.MD{keyVersion: texts}); err == nil {
			t.Errorf("%q was read as %+v", texts, h)
		}
	}
}

// format returns the format of the connection to another member.
func (m *member) format(to uint64) uint8 {
	l := m.link(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return 0
	}
	return l.out.format
}

// TestFormatsOfStrangers checks that a stream with missing or invalid formats is refused, and that
// a frame whose format differs from its stream's is rejected.
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

// FuzzFormats checks that no input makes the parser of formats panic, and that formats survive a
// round trip.
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

// allOf consumes a snapshot and discards it.
func allOf(_ context.Context, _ uint64, _ []byte, next func() ([]byte, error)) error {
	for {
		if _, err := next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
