package transport

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/metadata"
)

// errFormats means that two members have no format in common.
var errFormats = errors.New("transport: the members support no common format")

// Formats is the range of versions of the protocol between members that a member supports. A stream
// uses the newest version that both ends support, for its frames and for the messages in them. The
// opening of a stream has no version: its metadata can be extended, and existing keys keep their
// meaning forever.
type Formats struct{ Oldest, Newest uint8 }

// String returns the formats in readable form.
func (f Formats) String() string {
	if f.Oldest == f.Newest {
		return fmt.Sprintf("format %d", f.Oldest)
	}
	return fmt.Sprintf("formats %d to %d", f.Oldest, f.Newest)
}

// valid reports whether the range contains any format; 0 means none.
func (f Formats) valid() bool { return 0 < f.Oldest && f.Oldest <= f.Newest }

// has reports whether the range contains a format.
func (f Formats) has(format uint8) bool { return f.Oldest <= format && format <= f.Newest }

// common returns the newest format that both ranges contain. If there is none, the error wraps
// errFormats.
func (f Formats) common(other Formats) (uint8, error) {
	format := min(f.Newest, other.Newest)
	if !f.has(format) || !other.has(format) {
		return 0, fmt.Errorf("%w: this one supports %v, the other %v; run adjacent versions of "+
			"leasehold, and upgrade one version at a time", errFormats, f, other)
	}
	return format, nil
}

// readFormats returns the formats supported by the member that opens a stream.
func readFormats(md metadata.MD) (f Formats, err error) {
	texts := md.Get(keyFormats)
	if len(texts) != 1 {
		return f, errors.New("the stream does not specify its formats")
	}
	return parseFormats(texts[0])
}

func parseFormats(text string) (f Formats, err error) {
	if err := scan(text, "%d %d", &f.Oldest, &f.Newest); err != nil || !f.valid() {
		return f, fmt.Errorf("invalid formats %q", text)
	}
	return f, nil
}

// wire returns the encoding of the formats for the metadata.
func (f Formats) wire() string { return fmt.Sprintf("%d %d", f.Oldest, f.Newest) }
