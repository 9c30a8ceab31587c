// Package audit keeps a log of callers and their actions: one line of JSON per record, in a file
// that is rotated, or on a stream. Callers decide what a record contains; this package guarantees
// that no name, key or error can forge a line or a field.
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

// The outcomes.
const (
	OK     Outcome = "ok"
	Denied Outcome = "denied" // by access control, or because the login failed
	Failed Outcome = "failed"
)

// maxText limits each text of a record, in bytes, and maxKeys the number of keys.
const (
	maxText = 512
	maxKeys = 64
)

// Entry is one record. Zero and empty fields are omitted.
type Entry struct {
	Time time.Time
	// Event is the kind of record: "call", or the event of a lease.
	Event string
	// Principal is the principal of the caller, or empty if there is none.
	Principal Text
	// Address is the origin of the call, and Trace the trace to which it belongs according to the
	// caller.
	Address Text
	Trace   Text
	Call    Text
	// Target is the user, role or member that the call concerns, and Detail gives details.
	Target, Detail Text
	// Keys are keys and ranges of keys. More is the number of further ones.
	Keys []Range
	More int
	// Lease is the ID of a lease, written as commands print it, and Name is its name.
	Lease int64
	Name  Text
	// Owner is the owner that a lease names, which is not a principal.
	Owner Text
	// Seq is the number of the event of a lease.
	Seq      uint64
	Outcome  Outcome
	Error    Text
	Revision int64
}

// Range is a key or, with an end, a range of keys.
type Range struct{ Key, End Text }

// Reset empties the entry, for reuse.
func (e *Entry) Reset() {
	clear(e.Keys)
	*e = Entry{Keys: e.Keys[:0]}
}

// AddKey adds a key or a range of keys, unless there are too many already.
func (e *Entry) AddKey(key, end []byte) {
	if len(e.Keys) >= maxKeys {
		e.More++
		return
	}
	e.Keys = append(e.Keys, Range{cut(key), cut(end)})
}

// Text is text from any source. In JSON it is a string if it is valid UTF-8 and not long. Otherwise
// it is an object with its first bytes in base64, and whether there were more, so that no text
// looks like another.
type Text string

// cut returns as much of b as a record may contain, plus one byte if there is more.
func cut(b []byte) Text { return Text(b[:min(len(b), maxText+1)]) }

// append appends the record as a line.
//
// Package json would take several times as long, for each write on a busy member.
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

// lease appends the ID of a lease in hexadecimal, as commands print it.
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

// plain reports whether a text needs no escaping in JSON.
func plain(t Text) bool {
	for i := range len(t) {
		if c := t[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}
