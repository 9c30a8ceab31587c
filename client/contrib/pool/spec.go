package pool

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/tries"
)

// MaxIDs is the maximum number of IDs in a pool.
const MaxIDs = 1 << 16

// specID is the last part of the key that stores the pool's Spec.
const specID = "ids"

// Spec lists the IDs of a pool. If IDs is empty, they are the numbers from First to Last.
type Spec struct {
	// IDs lists the IDs. An element can be a range of IP addresses: "10.0.0.10-10.0.0.99" includes
	// all addresses from the first to the last, and "10.0.1.0/28" includes all addresses with the
	// prefix, even the first and the last one. "ids" cannot be used as an ID.
	IDs   []string `json:"ids,omitempty"`
	First int64    `json:"first,omitzero"`
	Last  int64    `json:"last,omitzero"`
	// Quarantine is how long an ID stays unused after its lease has expired. An ID that was
	// released is free immediately.
	Quarantine time.Duration `json:"quarantine_ns,omitzero"`
}

// all returns all IDs, or an error if the Spec is invalid.
func (s *Spec) all() ([]string, error) {
	if len(s.IDs) == 0 {
		n := s.Last - s.First + 1
		if s.Last < s.First || n <= 0 || n > MaxIDs {
			return nil, fmt.Errorf("%w: the range %d to %d must contain 1 to %d numbers",
				client.ErrInvalid, s.First, s.Last, MaxIDs)
		}
		out := make([]string, n)
		for i := range out {
			out[i] = strconv.FormatInt(s.First+int64(i), 10)
		}
		return out, nil
	}
	var out []string
	seen := make(map[string]bool, len(s.IDs))
	for _, text := range s.IDs {
		list, err := addresses(text)
		if err != nil {
			return nil, err
		}
		if list == nil {
			list = []string{text}
		}
		for _, id := range list {
			if id == specID { // the key of its holder would be POOL/held/ids
				return nil, fmt.Errorf("%w: %q cannot be an ID, because its key could belong to another pool",
					client.ErrInvalid, id)
			}
			if !tries.ValidID(id) || !utf8.ValidString(id) || seen[id] {
				return nil, fmt.Errorf("%w: %q is not a valid ID, or is a duplicate", client.ErrInvalid, id)
			}
			seen[id] = true
		}
		if out = append(out, list...); len(out) > MaxIDs {
			return nil, tooMany(text)
		}
	}
	return out, nil
}

func tooMany(text string) error {
	return fmt.Errorf("%w: with %q, the pool has more than %d IDs", client.ErrInvalid, text, MaxIDs)
}

// addresses returns the addresses in a range or prefix. It returns nil if text is neither.
func addresses(text string) ([]string, error) {
	var first, last netip.Addr
	prefix, err := netip.ParsePrefix(text)
	if err == nil {
		first = prefix.Masked().Addr()
	} else {
		from, to, _ := strings.Cut(text, "-")
		var bad error
		first, err = netip.ParseAddr(from)
		last, bad = netip.ParseAddr(to)
		if err != nil || bad != nil {
			return nil, nil
		}
		if first.BitLen() != last.BitLen() || first.Zone() != last.Zone() || last.Less(first) {
			return nil, fmt.Errorf("%w: %q is not a range from a lower to a higher address of the same family",
				client.ErrInvalid, text)
		}
	}
	var out []string
	for a := first; prefix.Contains(a) || !prefix.IsValid(); a = a.Next() {
		if len(out) == MaxIDs {
			return nil, tooMany(text)
		}
		if out = append(out, a.String()); a == last {
			break
		}
	}
	return out, nil
}
