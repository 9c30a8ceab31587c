package native

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/lease"
)

// cursor identifies the last lease of a page. That lease may have ended since. The zero value
// precedes the first page. It sorts before every lease, because IDs are positive and a name with a
// prefix is not empty.
type cursor struct {
	id   lease.ID
	name string
}

// A page token is the base64 encoding of a version, a checksum of the query and the position, and
// the position itself, which is an ID or a name.
const (
	cursorVersion = 1
	cursorHead    = 1 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// token returns the page token for continuing the query after the cursor.
func (c cursor) token(r *pb.ListRequest) string {
	place := []byte(c.name)
	if r.NamePrefix == "" {
		place = binary.BigEndian.AppendUint64(nil, uint64(c.id))
	}
	b := binary.BigEndian.AppendUint32([]byte{cursorVersion}, checksum(r, place))
	return base64.RawURLEncoding.EncodeToString(append(b, place...))
}

// readCursor decodes the page token in a request.
func readCursor(r *pb.ListRequest) (cursor, error) {
	if r.PageToken == "" {
		return cursor{}, nil
	}
	bad := invalid("page_token belongs to a different query")
	b, err := base64.RawURLEncoding.DecodeString(r.PageToken)
	if err != nil || len(b) < cursorHead || b[0] != cursorVersion {
		return cursor{}, bad
	}
	var c cursor
	switch place := b[cursorHead:]; {
	case r.NamePrefix != "":
		c.name = string(place)
	case len(place) == 8:
		c.id = lease.ID(binary.BigEndian.Uint64(place))
	}
	if c.token(r) != r.PageToken || !strings.HasPrefix(c.name, r.NamePrefix) {
		return cursor{}, bad
	}
	return c, nil
}

// checksum covers everything that must not change between pages. It detects mistakes but not
// forgery, because a client gains nothing by forging a token.
func checksum(r *pb.ListRequest, place []byte) uint32 {
	var b []byte
	add := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	add(r.NamePrefix)
	add(r.Owner)
	for _, k := range slices.Sorted(maps.Keys(r.Labels)) {
		add(k)
		add(r.Labels[k])
	}
	for _, id := range r.Ids {
		b = binary.BigEndian.AppendUint64(b, uint64(id))
	}
	return crc32.Checksum(append(b, place...), castagnoli)
}
