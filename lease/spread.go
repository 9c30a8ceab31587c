package lease

// spreader spreads the expiries after a promotion, so that no second has too many. It never makes
// an expiry earlier. Leases can be added in any order: each gets the first free position at or
// after its own expiry.
type spreader struct {
	rate int64
	now  Instant
	// seconds maps each second after the promotion to the number of positions taken. For a full
	// second, it also gives a later second where the search continues.
	seconds map[int64]second
}

type second struct {
	taken int64
	next  int64 // where to continue; set if the second is full
}

func newSpreader(rate int, now Instant) *spreader {
	return &spreader{rate: int64(rate), now: now, seconds: make(map[int64]second)}
}

// spread returns the instant at which a lease with this expiry may end.
func (s *spreader) spread(expiry Instant) Instant {
	own := max(0, int64(expiry-s.now)/1000)
	n := s.free(own)
	place := s.seconds[n].taken
	s.seconds[n] = second{taken: place + 1, next: n + 1}
	if n == own {
		return expiry
	}
	// Spread leases evenly over the second that they were moved to.
	at := s.now + Instant(n*1000+place*1000/s.rate)
	return max(expiry, at)
}

// free returns the first second at or after n that is not full. It shortens the path across full
// seconds for later searches, so that a burst of expiries takes linear time.
func (s *spreader) free(n int64) int64 {
	to := n
	for s.seconds[to].taken >= s.rate {
		to = s.seconds[to].next
	}
	for n != to {
		f := s.seconds[n]
		next := f.next
		f.next = to
		s.seconds[n] = f
		n = next
	}
	return to
}
