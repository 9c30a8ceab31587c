package lease

import (
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestHeldText checks how held ranges are described to the user.
func TestHeldText(t *testing.T) {
	for want, r := range map[string]*pb.KeyRange{
		`"a"`:                           {Key: []byte("a")},
		`"a" and all later keys`:        {Key: []byte("a"), RangeEnd: []byte{0}},
		`all keys that begin with "a/"`: {Key: []byte("a/"), RangeEnd: []byte("a0")},
		`"a" up to "c"`:                 {Key: []byte("a"), RangeEnd: []byte("c")},
	} {
		if got := heldText(r); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
