package cluster

import (
	"crypto/sha256"
	"testing"
)

func TestPercentFree(t *testing.T) {
	for _, tc := range []struct{ size, used, want int64 }{
		{0, 0, 0}, {100, 100, 0}, {100, 0, 100}, {25000, 20480, 19}, {3, 1, 67},
	} {
		if got := percentFree(tc.size, tc.used); got != tc.want {
			t.Errorf("percentFree(%d, %d) = %d, want %d", tc.size, tc.used, got, tc.want)
		}
	}
}

// TestTrailingSum checks that a snapshot is rejected unless its last bytes are the checksum of the
// rest, however the snapshot is split into writes.
func TestTrailingSum(t *testing.T) {
	body := "what a member had to say"
	sum := sha256.Sum256([]byte(body))
	good := body + string(sum[:])
	for cut := range len(good) {
		if !sumOf(good[:cut], good[cut:]) {
			t.Errorf("cut at %d: refused", cut)
		}
		bad := []byte(good)
		bad[cut] ^= 1
		if sumOf(string(bad)) {
			t.Errorf("byte %d changed: accepted", cut)
		}
	}
	if sumOf() || sumOf("short") || sumOf(body) {
		t.Error("accepted a stream without a checksum")
	}
}

func sumOf(writes ...string) bool {
	var s trailingSum
	for _, w := range writes {
		if n, err := s.Write([]byte(w)); n != len(w) || err != nil {
			return false
		}
	}
	return s.ok()
}
