package app

import (
	"errors"
	"strconv"
	"strings"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
)

// ParseLease parses a reference to a lease. It is either an ID, always in hexadecimal as in
// etcdctl, or a name. A name that looks like an ID needs the prefix "name:". bad is the error text
// for an invalid ID.
func ParseLease(s, bad string) (*pb.LeaseRef, error) {
	name, isName := strings.CutPrefix(s, "name:")
	id, err := strconv.ParseInt(s, 16, 64)
	switch {
	case isName && name == "":
		return nil, BadArgs("%q has no name", s)
	case err == nil && !isName:
		return &pb.LeaseRef{Id: id}, nil
	case s == "" || errors.Is(err, strconv.ErrRange):
		return nil, BadArgs("%s (%w), expecting ID in Hex", bad, err)
	default:
		return &pb.LeaseRef{Name: name}, nil
	}
}

// LeaseArg returns the argument that refers to the named lease. It adds the prefix "name:" if the
// name could be mistaken for an ID or itself begins with "name:".
func LeaseArg(name string) string {
	if r, err := ParseLeaseArg(name); err == nil && r.Name == name {
		return name
	}
	return "name:" + name
}

// ParseLeaseArg is ParseLease for a command-line argument.
func ParseLeaseArg(s string) (*pb.LeaseRef, error) { return ParseLease(s, "bad lease ID arg") }

// ParseTTL parses a TTL, which is either a number of seconds, as in etcdctl, or a duration with a
// unit. The result is in milliseconds, rounded up.
func ParseTTL(s string) (int64, error) {
	if seconds, err := strconv.ParseInt(s, 10, 64); err == nil {
		if seconds > MaxTTLSeconds {
			return 0, BadArgs("bad TTL %q, must be at most %d seconds", s, int64(MaxTTLSeconds))
		}
		return seconds * 1000, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, BadArgs("bad TTL %q, expecting seconds or a duration above 0 such as 500ms", s)
	}
	return MillisUp(d), nil
}

// MillisUp converts a duration to milliseconds, rounded up.
func MillisUp(d time.Duration) int64 {
	return int64(d/time.Millisecond) + min(1, int64(d%time.Millisecond))
}

// MaxTTLSeconds is the longest TTL that members accept.
const MaxTTLSeconds = 9_000_000_000

// Millis formats milliseconds as a duration.
func Millis(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
