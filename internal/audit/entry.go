// Package audit keeps the log of who did what: one line of JSON for each record, in a file that is
// rotated or on a stream. What stands in a record is for its callers to say; that no name, key or
// error can forge a line or a field is this package's promise.
package audit

import (
	"encoding/base64"
	"encoding/json"
	"time"
	"unicode/utf8"
)

// Outcome is what came of a call.
type Outcome string

// The outcomes.
const (
	OK     Outcome = "ok"
	Denied Outcome = "denied" // by access control, or because the login failed
	Failed Outcome = "failed"
)

// maxText bounds each text of a record, in bytes. maxKeys bounds its keys.
const (
	maxText = 512
	maxKeys = 64
)

// Entry is one record.
type Entry struct {
	Time time.Time `json:"time"`
	// What happened: "call", or the event of a lease.
	Event string `json:"event"`
	// Principal is who did it, empty for nobody.
	Principal Text `json:"principal,omitzero"`
	// Address is where the call came from.
	Address Text   `json:"address,omitzero"`
	Call    string `json:"call,omitempty"`
	// Target is the user, role or member that the call is about, and Detail what of it.
	Target Text `json:"target,omitzero"`
	Detail Text `json:"detail,omitzero"`
	// Keys are keys, and ranges of keys. More says how many there were beyond them.
	Keys []Range `json:"keys,omitempty"`
	More int     `json:"more_keys,omitempty"`
	// Lease is its ID in hexadecimal, as commands print it, and Name its name.
	Lease string `json:"lease,omitempty"`
	Name  Text   `json:"name,omitzero"`
	// Owner is what a lease says of its owner, which is no principal.
	Owner    Text    `json:"owner,omitzero"`
	Seq      uint64  `json:"seq,omitempty"`
	Outcome  Outcome `json:"outcome,omitempty"`
	Error    Text    `json:"error,omitzero"`
	Revision int64   `json:"revision,omitempty"`
}

// Range is a key or, with an end, a range of keys.
type Range struct {
	Key Text `json:"key"`
	End Text `json:"end,omitzero"`
}

// AddKey adds a key, or a range of keys, unless there are many already.
func (e *Entry) AddKey(key, end []byte) {
	if len(e.Keys) >= maxKeys {
		e.More++
		return
	}
	e.Keys = append(e.Keys, Range{cut(key), cut(end)})
}

// Text is text of anybody. In JSON it is a string if it is UTF-8 and not long. Else it is an object
// with its first bytes in base64, and how many there were: so no text looks like another.
type Text string

// cut returns as much of b as a record has, and one byte more if there is more.
func cut(b []byte) Text { return Text(b[:min(len(b), maxText+1)]) }

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	if len(t) <= maxText && utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(map[string]any{
		"base64": base64.StdEncoding.EncodeToString([]byte(t[:min(len(t), maxText)])),
		"cut":    len(t) > maxText,
	})
}
