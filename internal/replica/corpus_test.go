package replica

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/test/corpus"
)

// same reports whether two messages say the same.
func same(a, b *Message) bool {
	if a.Raft != nil && b.Raft != nil {
		return a.From == b.From && a.To == b.To && a.Version == b.Version && proto.Equal(a.Raft, b.Raft)
	}
	return reflect.DeepEqual(a, b)
}

// Goal: what this release sends, all later ones read, and send alike while they speak its
// version. Method: the messages are in a file, which does not change.
func TestCorpus(t *testing.T) {
	var records []corpus.Record
	for i, m := range messages() {
		b := m.AppendTo(nil)
		records = append(records, corpus.Record{Name: fmt.Sprint(i, " ", kind(m)), Bytes: b})
		if got, err := DecodeMessage(1, 2, b); err != nil || !same(got, m) {
			t.Errorf("%x is read as\n%+v, %v\nand not as\n%+v", b, got, err, m)
		}
	}
	corpus.Check(t, "testdata/v1/messages.txt", records)
}

// Goal: no bit of a message is ignored. Whatever bit differs, it is an error, or it means
// something else; and bits that mean nothing yet, of flags above all, are of a newer release. They
// stay so, in messages of their version, when a release gives them a meaning: how many there are of
// each byte after the version is in a file, too. Messages of Raft's are protobuf's, which finds its
// own way.
func TestNoBitIsIgnored(t *testing.T) {
	var unknown []corpus.Record
	for i, m := range messages() {
		b := m.AppendTo(nil)
		if m.Raft != nil {
			continue
		}
		newer := make([]byte, len(b))
		for b, at := range corpus.Flipped(b) {
			got, err := DecodeMessage(1, 2, b)
			switch {
			case errors.Is(err, encoding.ErrNewer):
				newer[at[1]]++
			case err != nil && !errors.Is(err, ErrMessage):
				t.Errorf("%d: bit %d of byte %d: %v", i, at[0], at[1], err)
			case err == nil && same(got, m):
				t.Errorf("%d: bit %d of byte %d is ignored", i, at[0], at[1])
			}
		}
		if bytes.Count(newer, []byte{0}) == len(newer) {
			t.Errorf("%d: no bit is of a newer release", i)
		}
		unknown = append(unknown, corpus.Record{Name: fmt.Sprint(i, " ", kind(m)), Bytes: newer[1:]})
	}
	corpus.Check(t, "testdata/v1/messages_unknown.txt", unknown)
}
