// Package message contains code shared by the client's packages for converting values to messages
// of leasehold.v1.
package message

import "time"

// Span converts a range to the form in which it is sent. Members reject an empty key, so a range
// that starts at the empty key is changed to start at the first possible key.
func Span(key, end string) (k, e []byte) {
	if key == "" && end != "" {
		key = "\x00"
	}
	return []byte(key), []byte(end)
}

// Ms converts a duration to milliseconds, rounded away from zero.
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
