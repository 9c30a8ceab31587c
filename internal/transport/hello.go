package transport

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// These constants are metadata keys.
const (
	keyHello   = "leasehold-hello"   // sent by the member that opens a stream
	keyFormats = "leasehold-formats" // sent with it; see Formats
	// sent with it: the sender's cluster version, and the index of the entry that decided it
	keyVersion = "leasehold-version"
	keyURL     = "leasehold-url"     // sent with it: where the sender listens, one value per URL
	keyProcess = "leasehold-process" // sent by the member that answers: its process and incarnation
	keyFormat  = "leasehold-format"  // format of the stream
	keySaid    = "leasehold-said"    // trailer: kind of answer in readable form
	keyMark    = "leasehold-mark"    // trailer of a refusal; repeated in the next hello
)

// These constants are the values of keySaid. An answer from the other member has this key. An error
// that gRPC generated because the connection broke does not.
const (
	saidRemoved = "removed"
	saidLost    = "lost"
	saidRefused = "refused"
	saidCopy    = "copy"
	saidFormats = "formats"
	saidVersion = "version"
)

// maxURLs is the maximum number of URLs used per member.
const maxURLs = 16

// maxWords bounds the length of the text in an answer, which is sent in a header.
const maxWords = 1 << 10

// A hello identifies the member that opens a stream and the member that the stream is addressed to.
type hello struct {
	cluster, from, to uint64
	instance          // process and incarnation of from
	formats           Formats
	version           uint8 // cluster version known to from
	decided           uint64
	// mark is the mark in the last refusal that member from received from member to, or 0.
	// Repeating it shows that this process is alive, and that the stream is not a late one from a
	// dead process.
	mark uint64
}

// visitor returns the argument for Admit.
func (h hello) visitor() Visitor {
	return Visitor{h.from, h.incarnation, h.formats, h.version, h.decided}
}

// context returns ctx with outgoing metadata that contains the hello and the sender's URLs.
func (h hello) context(ctx context.Context, urls []string) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, keyHello, h.String(), keyFormats, h.formats.wire(),
		keyVersion, fmt.Sprintf("%d %d", h.version, h.decided))
	for _, u := range urls {
		ctx = metadata.AppendToOutgoingContext(ctx, keyURL, u)
	}
	if h.mark != 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, keyMark, formatMark(h.mark))
	}
	return ctx
}

// String returns the encoding of the hello for the metadata.
func (h hello) String() string {
	return fmt.Sprintf("%x %x %x %x %x", h.cluster, h.from, h.to, h.process, h.incarnation)
}

// readHello reads the hello of an incoming stream.
func readHello(ctx context.Context) (h hello, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	texts := md.Get(keyHello)
	if len(texts) != 1 {
		return h, errors.New("the stream does not specify a member")
	}
	if h, err = parseHello(texts[0]); err != nil {
		return h, err
	}
	h.mark = readMark(md)
	if h.formats, err = readFormats(md); err == nil {
		err = h.readVersion(md)
	}
	return h, err
}

// scan reads numbers from a text that contains nothing else. Trailing text is an error, because a
// newer release may have added it, and additions must not be ignored.
func scan(text, format string, numbers ...any) error {
	const end = " ."
	if n := len(strings.Fields(text)); n != len(numbers) {
		return fmt.Errorf("got %d numbers, want %d", n, len(numbers))
	}
	_, err := fmt.Sscanf(text+end, format+end, numbers...)
	return err
}

// readVersion reads the cluster version of the member that opens a stream.
func (h *hello) readVersion(md metadata.MD) error {
	texts := md.Get(keyVersion)
	if len(texts) != 1 {
		return errors.New("the stream does not specify a cluster version")
	}
	if err := scan(texts[0], "%d %d", &h.version, &h.decided); err != nil {
		return fmt.Errorf("invalid cluster version %q", texts[0])
	}
	return nil
}

func formatMark(mark uint64) string { return strconv.FormatUint(mark, 16) }

// readMark returns the mark in md, or 0 if there is none.
func readMark(md metadata.MD) uint64 {
	texts := md.Get(keyMark)
	if len(texts) != 1 {
		return 0
	}
	mark, _ := strconv.ParseUint(texts[0], 16, 64)
	return mark
}

// readURLs returns the URLs sent by the member that opened a stream. It skips invalid URLs, because
// they are no reason to refuse the stream.
func readURLs(ctx context.Context) (urls []url.URL) {
	md, _ := metadata.FromIncomingContext(ctx)
	for _, text := range md.Get(keyURL) {
		if u, err := url.Parse(text); err == nil && len(urls) < maxURLs {
			urls = append(urls, *u)
		}
	}
	return urls
}

func parseHello(text string) (h hello, err error) {
	err = scan(text, "%x %x %x %x %x",
		&h.cluster, &h.from, &h.to, &h.process, &h.incarnation)
	if err != nil || h.process == 0 {
		return h, fmt.Errorf("invalid hello %q", text)
	}
	return h, nil
}

// An instance distinguishes a process and its data directory from others with the same member ID.
type instance struct{ process, incarnation uint64 }

func (t *Transport) instance() instance { return instance{t.cfg.Process, t.cfg.Incarnation} }

// An answer accepts a stream. It identifies the process that accepts the stream, and contains the
// stream's format.
type answer struct {
	instance
	format uint8
}

// header returns the answer as a gRPC header.
func (a answer) header() metadata.MD {
	return metadata.Pairs(keyProcess, fmt.Sprintf("%x %x", a.process, a.incarnation),
		keyFormat, fmt.Sprint(a.format))
}

// readAnswer reads the answer from a header. ok is false if the stream was refused.
func readAnswer(md metadata.MD) (a answer, ok bool) {
	texts := slices.Concat(md.Get(keyProcess), md.Get(keyFormat))
	if len(texts) != 2 {
		return a, false
	}
	err := scan(strings.Join(texts, " "), "%x %x %d", &a.process, &a.incarnation, &a.format)
	return a, err == nil && a.process != 0
}

// trailing is the part of a server stream that say uses.
type trailing interface{ SetTrailer(metadata.MD) }

// toStatus converts err into a gRPC status with a text for the other side.
func toStatus(s trailing, err error) error {
	kind := saidRefused
	switch {
	case errors.Is(err, ErrRemoved):
		kind = saidRemoved
	case errors.Is(err, ErrLost):
		kind = saidLost
	case errors.Is(err, ErrCopy):
		kind = saidCopy
	case errors.Is(err, errFormats):
		kind = saidFormats
	case errors.Is(err, ErrVersion):
		kind = saidVersion
	}
	trailer := metadata.Pairs(keySaid, kind)
	var marked *markedError
	if errors.As(err, &marked) {
		trailer.Set(keyMark, formatMark(marked.mark))
	}
	s.SetTrailer(trailer)
	text := err.Error()
	if len(text) > maxWords {
		text = text[:maxWords] + "..."
	}
	return status.Error(codes.FailedPrecondition, text)
}

// parseRefusal converts the error of a client's stream into ErrRemoved, ErrLost, ErrCopy, an error
// that wraps errFormats or ErrVersion, or a *remoteError. Any other error means that the connection
// broke; it is returned unchanged.
func parseRefusal(err error, trailer metadata.MD) error {
	said := trailer.Get(keySaid)
	if len(said) == 0 {
		return err
	}
	switch said[0] {
	case saidRemoved:
		return ErrRemoved
	case saidLost:
		return ErrLost
	case saidCopy:
		return ErrCopy
	case saidFormats:
		return fmt.Errorf("%w; member says: %s", errFormats, status.Convert(err).Message())
	case saidVersion:
		return fmt.Errorf("%w; member says: %s", ErrVersion, status.Convert(err).Message())
	}
	remote := &remoteError{Text: status.Convert(err).Message()}
	if mark := readMark(trailer); mark != 0 {
		return &markedError{error: remote, mark: mark}
	}
	return remote
}
