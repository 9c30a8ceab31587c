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

// same reports whether two messages are equal.
func same(a, b *Message) bool {
	if a.Raft != nil && b.Raft != nil {
		return a.From == b.From && a.To == b.To && a.Version == b.Version && proto.Equal(a.Raft, b.Raft)
	}
	return reflect.DeepEqual(a, b)
}

// TestCorpus checks that this release decodes and encodes all messages exactly as in a file that
// never changes. Later releases must decode these messages too, and encode them the same way while
// they use this version.
func TestCorpus(t *testing.T) {
	var records []corpus.Record
	for i, m := range messages() {
		b := m.AppendTo(nil)
		records = append(records, corpus.Record{Name: fmt.Sprint(i, " ", kind(m)), Bytes: b})
		if got, err := DecodeMessage(1, 2, b); err != nil || !same(got, m) {
			t.Errorf("%x decodes to\n%+v, %v\nwant\n%+v", b, got, err, m)
		}
	}
	corpus.Check(t, "testdata/v1/messages.txt", records)
}

// TestNoBitIsIgnored checks that no bit of a message is ignored. Each flipped bit causes an error,
// changes the meaning, or indicates a newer release. A file records how many bits of each byte are
// unused, so that they remain unused in messages of this version. Raft messages are skipped because
// protobuf has its own rules.
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
				t.Errorf("message %d: bit %d of byte %d: %v", i, at[0], at[1], err)
			case err == nil && same(got, m):
				t.Errorf("message %d: bit %d of byte %d is ignored", i, at[0], at[1])
			}
		}
		if bytes.Count(newer, []byte{0}) == len(newer) {
			t.Errorf("message %d: no bit indicates a newer release", i)
		}
		unknown = append(unknown, corpus.Record{Name: fmt.Sprint(i, " ", kind(m)), Bytes: newer[1:]})
	}
	corpus.Check(t, "testdata/v1/messages_unknown.txt", unknown)
}
