// Package audit logs who made a call and what they did. Each record is one line of JSON, written to
// a rotated file or to a stream. The callers of this package decide what a record contains. The
// package guarantees that no name, key or error can forge a line or a field.
package audit

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// Outcome is the outcome of a call.
type Outcome string

// The outcomes of calls.
const (
	OK     Outcome = "ok"
	Denied Outcome = "denied" // by access control, or because the login failed
	Failed Outcome = "failed"
)

// maxText is the maximum length of each string in a record, in bytes. maxKeys is the maximum number
// of keys in a record.
const (
	maxText = 512
	maxKeys = 64
)

// Entry is one record. Zero and empty fields are omitted.
type Entry struct {
	Time time.Time
	// Event is the type of the record: "call", or the kind of lease event.
	Event string
	// Principal is the caller's principal, or empty if the caller is anonymous.
	Principal Text
	// Address is the address that the call comes from. Trace is the ID of the trace that the call
	// belongs to, as sent by the caller.
	Address Text
	Trace   Text
	Call    Text
	// Target is the user, role or member that the call concerns. Detail contains more details.
	Target, Detail Text
	// Keys are keys and key ranges. More is the number of keys and ranges that were omitted.
	Keys []Range
	More int
	// Lease is a lease ID, formatted as in command output. Name is the lease's name.
	Lease int64
	Name  Text
	// Owner is the owner that the lease specifies. It is not a principal.
	Owner Text
	// Seq is the lease event's number.
	Seq      uint64
	Outcome  Outcome
	Error    Text
	Revision int64
}

// Range is a key or, if End is set, a range of keys.
type Range struct{ Key, End Text }

// Reset clears the entry so that it can be reused.
func (e *Entry) Reset() {
	clear(e.Keys)
	*e = Entry{Keys: e.Keys[:0]}
}

// AddKey adds a key or a range of keys. Once there are maxKeys of them, it only counts further
// ones.
func (e *Entry) AddKey(key, end []byte) {
	if len(e.Keys) >= maxKeys {
		e.More++
		return
	}
	e.Keys = append(e.Keys, Range{cut(key), cut(end)})
}

// Text is text from any source, trusted or not. In JSON, it is a string if it is valid UTF-8 and
// not too long. Otherwise, it is an object with the first bytes in base64 and a flag that says
// whether there were more. This way, one text can never pass for another.
type Text string

// cut returns the part of b that fits in a record, plus one more byte if b is longer.
func cut(b []byte) Text { return Text(b[:min(len(b), maxText+1)]) }

// append appends the record to b as one line.
//
// Package encoding/json would take several times as long, and a busy member calls append for every
// write.
func (e *Entry) append(b []byte) []byte {
	b = append(b, `{"time":"`...)
	b = e.Time.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, '"')
	b = field(b, "event", Text(e.Event))
	b = field(b, "principal", e.Principal)
	b = field(b, "address", e.Address)
	b = field(b, "trace", e.Trace)
	b = field(b, "call", e.Call)
	b = field(b, "target", e.Target)
	b = field(b, "detail", e.Detail)
	for i, k := range e.Keys {
		b = append(b, [...]string{`,"keys":[{"key":`, `,{"key":`}[min(i, 1)]...)
		b = k.Key.append(b)
		b = append(field(b, "end", k.End), '}')
	}
	if len(e.Keys) > 0 {
		b = append(b, ']')
	}
	b = number(b, "more_keys", int64(e.More))
	b = lease(b, e.Lease)
	b = field(b, "name", e.Name)
	b = field(b, "owner", e.Owner)
	b = number(b, "seq", int64(e.Seq))
	b = field(b, "outcome", Text(e.Outcome))
	b = field(b, "error", e.Error)
	b = number(b, "revision", e.Revision)
	return append(b, '}', '\n')
}

func field(b []byte, name string, t Text) []byte {
	if t == "" {
		return b
	}
	return t.append(append(append(append(b, `,"`...), name...), `":`...))
}

// lease appends a lease ID in hexadecimal, as commands print it.
func lease(b []byte, id int64) []byte {
	if id == 0 {
		return b
	}
	b = append(b, `,"lease":"`...)
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[uint64(id)>>shift&0xf])
	}
	return append(b, '"')
}

func number(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(append(append(b, `,"`...), name...), `":`...), n, 10)
}

// append appends the text as a JSON value.
func (t Text) append(b []byte) []byte {
	switch {
	case len(t) <= maxText && plain(t):
		return append(append(append(b, '"'), t...), '"')
	case len(t) <= maxText && utf8.ValidString(string(t)):
		quoted, _ := json.Marshal(string(t)) // never fails for a string
		return append(b, quoted...)
	}
	b = append(b, `{"base64":"`...)
	b = base64.StdEncoding.AppendEncode(b, []byte(t[:min(len(t), maxText)]))
	b = append(b, `","cut":`...)
	return append(strconv.AppendBool(b, len(t) > maxText), '}')
}

// plain reports whether a text can be used in JSON without escaping.
func plain(t Text) bool {
	for i := range len(t) {
		if c := t[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}
