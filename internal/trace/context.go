package trace

import (
	"encoding/hex"
	"math"
	"strings"
)

// ID is that of a trace. No trace has the zero value.
type ID [16]byte

// String returns the ID as Trace Context writes it.
func (i ID) String() string { return hex.EncodeToString(i[:]) }

// SpanID is that of a span within its trace. No span has the zero value.
type SpanID [8]byte

// Parent is what the caller of a call says of the trace that the call is part of. It is the
// caller's word, and proves nothing.
type Parent struct {
	Trace ID
	Span  SpanID
	// Sampled says that the caller keeps its part of the trace.
	Sampled bool
	// State is what tracing systems say to each other, and all pass on.
	State string
}

// The parts of a header traceparent: version-trace-span-flags.
const (
	traceAt, spanAt, flagsAt = len("00-"), len("00-") + 33, len("00-") + 33 + 17
	parentSize               = flagsAt + 2
)

// Parse reads a header traceparent. It reports false if that is not one by Trace Context, which is
// as if there were none. Of versions to come it reads what is known now.
func Parse(text string) (p Parent, ok bool) {
	if len(text) < parentSize || text[traceAt-1] != '-' || text[spanAt-1] != '-' ||
		text[flagsAt-1] != '-' {
		return Parent{}, false
	}
	var version, flags [1]byte
	if !read(version[:], text) || !read(p.Trace[:], text[traceAt:]) ||
		!read(p.Span[:], text[spanAt:]) || !read(flags[:], text[flagsAt:]) {
		return Parent{}, false
	}
	rest := text[parentSize:]
	switch {
	case version[0] == 0xff, version[0] == 0 && rest != "", rest != "" && rest[0] != '-':
		return Parent{}, false
	case p.Trace == ID{}, p.Span == SpanID{}:
		return Parent{}, false
	}
	p.Sampled = flags[0]&1 != 0
	return p, true
}

// read reads lower-case hex digits that text begins with, and has enough of.
func read(to []byte, text string) bool {
	text = text[:2*len(to)]
	if strings.Trim(text, "0123456789abcdef") != "" {
		return false // hex takes upper-case digits, too
	}
	_, err := hex.Decode(to, []byte(text))
	return err == nil
}

// maxState bounds what is kept of headers tracestate: as much as everybody has to pass on.
const maxState = 512

// State joins headers tracestate. What is too long, or has bytes that no header may have, is
// as if there were none: unlike an entry that is cut off, that says nothing false.
func State(headers []string) string {
	all := strings.Join(headers, ",")
	if len(all) > maxState {
		return ""
	}
	for i := range len(all) {
		if all[i] < ' ' || all[i] > '~' {
			return ""
		}
	}
	return all
}

// Rate is the share of the calls without a parent that are sampled.
type Rate uint64

// NewRate returns the rate for a share from 0 to 1.
func NewRate(share float64) Rate {
	if share >= 1 {
		return math.MaxUint64
	}
	return Rate(share * (1 << 63) * 2)
}

// Takes reports whether a call is sampled, by a random number.
func (r Rate) Takes(random uint64) bool { return random < uint64(r) || r == math.MaxUint64 }
