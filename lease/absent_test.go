package lease

import (
	"slices"
	"testing"
)

// TestEndsWhileListed checks that leases that end during an iteration are omitted, and that the
// iteration stops when the caller does.
func TestEndsWhileListed(t *testing.T) {
	l := New(Config{})
	grant := func() {
		for id := ID(1); id <= 3; id++ {
			mustGrant(t, l, Terms{ID: id, TTL: 1000, Name: string(rune('a' + id))})
		}
	}
	end := func(id ID) {
		if _, err := l.Revoke(id); err != nil {
			t.Fatal(err)
		}
	}
	grant()
	var seen []ID
	for info := range l.Leases() {
		if seen = append(seen, info.ID); info.ID == 1 {
			end(2)
		}
	}
	for info := range l.Named("") {
		if seen = append(seen, info.ID); info.ID == 1 {
			end(3)
		}
	}
	if want := []ID{1, 3, 1}; !slices.Equal(seen, want) {
		t.Errorf("seen were %v, want %v", seen, want)
	}
	end(1)
	grant()
	view := l.View()
	seen = nil
	for info := range l.Leases() {
		seen = append(seen, info.ID)
		break
	}
	for info := range view.All() {
		seen = append(seen, info.ID)
		break
	}
	for info := range view.Named("") {
		seen = append(seen, info.ID)
		break
	}
	if want := []ID{1, 1, 1}; !slices.Equal(seen, want) {
		t.Errorf("seen were %v, want %v", seen, want)
	}
}

// TestBytes checks that the size of a lease includes its texts, labels, keys and other optional
// data, and that a lease that has ended no longer counts.
func TestBytes(t *testing.T) {
	for _, c := range []struct {
		terms Terms
		want  int64
	}{
		{Terms{}, leaseBytes},
		{Terms{Name: "12345", Owner: "678", RequestID: "9"}, leaseBytes + extraBytes + 9},
		{Terms{Secret: Secret{1}}, leaseBytes + extraBytes},
		{Terms{KeepKeys: true}, leaseBytes + extraBytes},
		{Terms{LockDelay: 1}, leaseBytes + extraBytes},
		{
			Terms{Labels: map[string]string{"a": "bc", "def": ""}},
			leaseBytes + extraBytes + 2*labelBytes + 6,
		},
	} {
		l := New(Config{})
		c.terms.ID, c.terms.TTL = 1, 1000
		mustGrant(t, l, c.terms)
		if l.Bytes() != c.want {
			t.Errorf("%+v takes %d bytes, want %d", c.terms, l.Bytes(), c.want)
		}
		for range 2 {
			for _, key := range []string{"k", "l"} {
				if err := l.Attach(1, key); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := c.want + 2*AttachBytes
		if c.terms.KeepKeys {
			want += 2 * KeepBytes
		}
		if l.Bytes() != want {
			t.Errorf("%+v with two keys takes %d bytes, want %d", c.terms, l.Bytes(), want)
		}
		if _, err := l.Revoke(1); err != nil || l.Bytes() != 0 {
			t.Errorf("%d bytes are left, %v", l.Bytes(), err)
		}
	}
}
