package transport

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

// split returns all messages of a frame.
func split(frame []byte) (messages [][]byte, err error) {
	rest, err := open(1, frame)
	for err == nil && len(rest) > 0 {
		var m []byte
		if m, rest, err = cut(rest); err == nil {
			messages = append(messages, m)
		}
	}
	return messages, err
}

// TestFrameDamage checks that frames survive a round trip, and that every frame with a changed byte
// or a truncation is rejected.
func TestFrameDamage(t *testing.T) {
	b := newFrame(1, 0)
	for _, m := range []string{"one", "", "three"} {
		b.add(bytesMessage(m))
	}
	good := b.seal().data
	got, err := split(good)
	if err != nil || fmt.Sprintf("%s", got) != "[one  three]" {
		t.Fatalf("%q, %v", got, err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if _, err := split(bad); !errors.Is(err, errCorrupt) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := split(good[:i]); !errors.Is(err, errCorrupt) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := unwrap(1, good); !errors.Is(err, errCorrupt) {
		t.Errorf("three messages taken for one: %v", err)
	}
}

// FuzzFrame checks that no input makes the decoder panic or return more data than it received. A
// second round does the same with a valid checksum.
func FuzzFrame(f *testing.F) {
	b := newFrame(1, 0)
	b.add(bytesMessage("seed"))
	f.Add(b.seal().data)
	f.Add([]byte{})
	f.Add([]byte{1, 0, 0, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		for range 2 {
			messages, err := split(data)
			total := 0
			for _, m := range messages {
				total += len(m)
			}
			if total > len(data) {
				t.Fatalf("%d bytes out of %d", total, len(data))
			}
			if err != nil && !errors.Is(err, errCorrupt) {
				t.Fatalf("error without its sentinel: %v", err)
			}
			if err == nil {
				again := newFrame(1, 0)
				for _, m := range messages {
					again.add(bytesMessage(m))
				}
				if !bytes.Equal(again.seal().data, data) {
					t.Fatalf("%x packs again to %x", data, again.data)
				}
			}
			if len(data) < frameHead {
				return
			}
			data = (&blob{data: bytes.Clone(data)}).seal().data
			data[0] = 1
		}
	})
}

// FuzzHello checks that no input makes the parser of hellos panic, and that a hello survives a
// round trip.
func FuzzHello(f *testing.F) {
	f.Add("1 a b c d")
	f.Add("1 a b 0 d")
	f.Add("1 a b c")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHello(text)
		if err != nil {
			return
		}
		if again, err := parseHello(h.String()); err != nil || again != h {
			t.Fatalf("%q reads as %v, then as %v, %v", text, h, again, err)
		}
	})
}
