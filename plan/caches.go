package plan

import (
	"fmt"
	"math"
	"time"
)

// Sharing is Gray and Cheriton's model of leases on cached data ("Leases: An Efficient
// Fault-Tolerant Mechanism for Distributed File Cache Consistency", SOSP 1989, in the section on
// choosing the term). The letters are taken from the paper.
type Sharing struct {
	// Reads and Writes are R and W, the rates at which one cache reads and writes a datum, per
	// second.
	Reads, Writes float64
	// Caches is S, the number of caches that share the datum.
	Caches float64
	// Propagation is m_prop, the travel time of a message. Processing is m_proc, the time that each
	// end needs to process a message.
	Propagation, Processing time.Duration
	// Skew is epsilon, the maximum difference between clocks.
	Skew time.Duration
	// Term is t_s, the term at the server. 0 means the recommended term.
	Term time.Duration
	// LongestWait is the longest time that a write should have to wait for a dead cache. It limits
	// the recommended term. 0 means a minute.
	LongestWait time.Duration
}

func (s Sharing) check() error {
	err := finite(
		number("read rate", s.Reads),
		number("write rate", s.Writes),
		number("number of caches", s.Caches),
	)
	if err != nil {
		return err
	}
	err = bounded(
		span("message time", s.Propagation),
		span("processing time", s.Processing),
		span("clock skew", s.Skew),
		span("term", s.Term),
		span("maximum write delay", s.LongestWait),
	)
	if err != nil {
		return err
	}
	switch {
	case s.Caches < 1:
		return inputErrorf("number of caches", "use at least 1", "is %v", s.Caches)
	case s.Reads == 0:
		return inputErrorf("read rate", "specify the reads per second of one cache, such as 0.9",
			"is 0, so there is nothing to cache")
	case s.Term > 0 && s.Effective(s.Term) == 0:
		return inputErrorf("term", fmt.Sprintf("use more than %v", s.lost()),
			"is %v, which ends before the client receives it", s.Term)
	}
	return nil
}

// lost returns the part of a term that a client cannot use.
func (s Sharing) lost() time.Duration { return s.Propagation + 2*s.Processing + s.Skew }

// Effective returns t_c, the part of a term that a client can use (G1):
//
//	max(0, t_s - (m_prop + 2 m_proc) - epsilon)
func (s Sharing) Effective(term time.Duration) time.Duration { return max(0, term-s.lost()) }

// Benefit returns alpha, the benefit factor 2R/(SW) (G2). If it is above 1, there is a term that
// makes the server's load lower than it is without leases. Benefit is infinite if there are no
// writes.
func (s Sharing) Benefit() float64 {
	if s.Writes == 0 {
		return math.Inf(1)
	}
	return 2 * s.Reads / (s.Caches * s.Writes)
}

// Load returns the number of consistency messages at the server, relative to the number without
// leases (G3). Extensions contribute 1/(1 + R t_c). If several caches share the datum, approvals of
// writes contribute 1/alpha. Without leases the load is 1.
func (s Sharing) Load(term time.Duration) float64 {
	c := s.Effective(term)
	if c == 0 {
		return 1
	}
	load := 1 / (1 + s.Reads*c.Seconds())
	if s.Caches > 1 && s.Writes > 0 {
		load += 1 / s.Benefit()
	}
	return load
}

// Approval returns how long a write waits for the other caches' approval if all of them are alive
// (G4). It is 2 m_prop + (S + 2) m_proc, for a multicast and S - 1 answers, or 0 if the datum is
// not shared.
func (s Sharing) Approval() time.Duration {
	if s.Caches <= 1 {
		return 0
	}
	return 2*s.Propagation + scaled(s.Processing, s.Caches+2)
}

// Delay returns the average delay that consistency adds to a read or write (G5). One read in 1 + R
// t_c waits for 2 m_prop + 4 m_proc, and a shared write waits for its approval.
func (s Sharing) Delay(term time.Duration) time.Duration {
	ask := float64(2*s.Propagation + 4*s.Processing)
	c := s.Effective(term)
	reads := s.Reads * ask / (1 + s.Reads*c.Seconds())
	writes := 0.0
	if c > 0 {
		writes = s.Writes * float64(s.Approval())
	}
	return time.Duration((reads + writes) / (s.Reads + s.Writes))
}

// A CachePoint is a term with its load and delay.
type CachePoint struct {
	Term  time.Duration
	Load  float64
	Delay time.Duration
}

// A CacheChoice holds the computed terms and costs of leases on cached data.
type CacheChoice struct {
	Sharing Sharing
	// Benefit is alpha. Worth is set if leases are worthwhile at all, for terms above BreakEven
	// (G6).
	Benefit   float64
	Worth     bool
	BreakEven time.Duration
	// Recommended is the term that reduces the number of extensions to a tenth of the number
	// without leases (G7). It is at most LongestWait, and 0 if leases are not worthwhile.
	Recommended time.Duration
	Capped      bool
	// At describes the given term, or the recommended one. Effective is the part of that term that
	// a client can use.
	At        CachePoint
	Effective time.Duration
	// Limit is the load with an infinite term.
	Limit float64
	// Approval is the delay of a write if all caches are alive. WorstWrite is the delay if one is
	// dead.
	Approval, WorstWrite time.Duration
	// Curve contains the load and the delay for different terms.
	Curve []CachePoint
}

// tenth is the value of R t_c that reduces the extensions to a tenth: 1/(1 + 9).
const tenth = 9

// ChooseCaches computes the benefit and the costs of leases on cached data.
func ChooseCaches(s Sharing) (CacheChoice, error) {
	if s.LongestWait == 0 {
		s.LongestWait = time.Minute
	}
	if err := s.check(); err != nil {
		return CacheChoice{}, err
	}
	c := CacheChoice{Sharing: s, Benefit: s.Benefit(), Approval: s.Approval()}
	shared := s.Caches > 1 && s.Writes > 0
	c.Worth = !shared || c.Benefit > 1
	if shared {
		c.Limit = 1 / c.Benefit
	}
	if c.Worth {
		c.Recommended = seconds(tenth/s.Reads) + s.lost()
		if c.Recommended > s.LongestWait {
			c.Recommended, c.Capped = s.LongestWait, true
		}
		if shared {
			c.BreakEven = seconds(1/(s.Reads*(c.Benefit-1))) + s.lost()
		}
		if c.Worth = c.Recommended > c.BreakEven && s.Effective(c.Recommended) > 0; !c.Worth {
			c.Recommended = 0
		}
	}
	term := s.Term
	if term == 0 {
		term = c.Recommended
	}
	c.At, c.Effective = s.at(term), s.Effective(term)
	c.WorstWrite = max(term, c.Approval)
	end := max(3*max(term, c.Recommended), 5*time.Second)
	c.Curve = s.curve(max(end, 2*s.lost()))
	return c, nil
}

// curve returns points up to the term end. The curve has a step at the shortest term that is of any
// use to a client, because longer terms require the approval of writes.
func (s Sharing) curve(end time.Duration) []CachePoint {
	const points = 120
	out := []CachePoint{s.at(0), s.at(s.lost())}
	for i := range points + 1 {
		step := scaled(end-s.lost(), float64(i)/points)
		t := s.lost() + max(step, time.Microsecond)
		out = append(out, s.at(t))
	}
	return out
}

func (s Sharing) at(term time.Duration) CachePoint {
	return CachePoint{term, s.Load(term), s.Delay(term)}
}

// Explain describes the choice in sentences.
func (c CacheChoice) Explain() []string {
	s := c.Sharing
	if !c.Worth {
		why := fmt.Sprintf("the benefit factor 2R/(SW) is %s, and each write needs the approval of "+
			"%v caches", decimal(c.Benefit), s.Caches)
		if c.Benefit > 1 {
			why = fmt.Sprintf("reads are so rare that no term up to %v pays off", s.LongestWait)
		}
		if s.Effective(s.LongestWait) == 0 {
			why = fmt.Sprintf("no term up to %v is longer than the %v that a client cannot use",
				s.LongestWait, short(s.lost()))
		}
		return []string{"DO NOT LEASE this datum: " + why + ". Read it from the server every time."}
	}
	out := []string{fmt.Sprintf("USE a term of %v: the client can use %v of it, and goes to the "+
		"server for one in %s reads.", rounded(c.Recommended),
		rounded(s.Effective(c.Recommended)),
		decimal(1+s.Reads*s.Effective(c.Recommended).Seconds()))}
	if c.Capped {
		out = append(out,
			fmt.Sprintf("A longer term would reduce the load further, but writes wait up to a term "+
				"for a dead cache, and you allow at most %v.", s.LongestWait))
	}
	if c.BreakEven > 0 {
		out = append(out, fmt.Sprintf("Leases shorter than %v cost more than they save.",
			rounded(c.BreakEven)))
	}
	return append(out, fmt.Sprintf("A term of %v reduces the load to %.1f%% of that without "+
		"leases, and an infinite one to %.1f%%. A write waits %v for approvals, and up to %v if a "+
		"cache is dead.",
		rounded(c.At.Term), 100*c.At.Load, 100*c.Limit, rounded(c.Approval),
		rounded(c.WorstWrite)))
}
