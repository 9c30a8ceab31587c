// Package message contains the code with which the packages of the client convert their values to
// messages of leasehold.v1.
package message

import "time"

// Span is a range in the form in which it is sent. Members reject an empty key, so a range from the
// empty key on is sent as a range from the first possible key on.
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
