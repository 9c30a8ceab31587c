// Package message has what the packages of the client share when they turn their values into
// messages of leasehold.v1.
package message

import "time"

// Span is a range as it is sent. No key is empty, and members refuse one that is: a range from
// there on is one from the first key that can be.
func Span(key, end string) (k, e []byte) {
	if key == "" && end != "" {
		key = "\x00"
	}
	return []byte(key), []byte(end)
}

// Ms converts a time to milliseconds, rounded away from zero.
func Ms(d time.Duration) int64 {
	ms := d.Milliseconds()
	switch rest := d % time.Millisecond; {
	case rest > 0:
		return ms + 1
	case rest < 0:
		return ms - 1
	default:
		return ms
	}
}
