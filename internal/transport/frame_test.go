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

// Goal: what is packed comes out; every frame of which one byte was changed, or
// some were cut off, is refused. Method: each byte and each length of a frame.
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

// Goal: no bytes make the decoder panic or hand out more than came; also with a
// checksum that is right, which chance does not find. Method: fuzz, sealing the
// input in a second round.
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

// Goal: no text makes the parser of hellos panic, and what is written is read.
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

// Goal: the queue keeps its order and its bounds, also when it never runs empty.
func TestQueue(t *testing.T) {
	var q queue
	pushed, popped := 0, 0
	lim := limits{count: 1000, bytes: 5000}
	for round := range 10000 {
		for q.push(bytesMessage(fmt.Sprint(pushed)), lim) {
			pushed++
		}
		if q.len() > lim.count || q.bytes > lim.bytes {
			t.Fatalf("%d messages, %d bytes", q.len(), q.bytes)
		}
		for range round%7 + 1 {
			if got := string(q.pop().(bytesMessage)); got != fmt.Sprint(popped) {
				t.Fatalf("popped %s, want %d", got, popped)
			}
			popped++
		}
	}
	if cap(q.items) > 4*lim.count {
		t.Errorf("room for %d", cap(q.items))
	}
	q.trim(limits{count: 3, bytes: 5000})
	if q.len() != 3 || string(q.pop().(bytesMessage)) != fmt.Sprint(pushed-3) {
		t.Error("trim did not keep the newest")
	}
	if got := q.take(nil, 1); len(got) != 1 {
		t.Errorf("took %d", len(got))
	}
	q = queue{}
	if !q.push(bytesMessage("larger than the bound"), limits{count: 1, bytes: 1}) {
		t.Error("an empty queue refused")
	}
}
