package transport

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// protocolVersion is that of the streams, their metadata and their frames.
const protocolVersion = 1

// Keys of the metadata.
const (
	keyHello   = "leasehold-hello"   // of whoever opens a stream
	keyURL     = "leasehold-url"     // likewise: where it listens, one for each URL
	keyProcess = "leasehold-process" // of whoever answers: its process
	keySaid    = "leasehold-said"    // trailer of an answer in words
)

// What keySaid may say. Its presence tells an answer of the other member from an
// error that gRPC made up because the connection broke.
const (
	saidRemoved = "removed"
	saidRefused = "refused"
)

// maxURLs bounds how many URLs of a member are looked at.
const maxURLs = 16

// maxWords bounds an answer in words, which travels in a header.
const maxWords = 1 << 10

// A hello says who opens a stream to whom.
type hello struct {
	cluster, from, to, process uint64
}

// context returns ctx with the hello for the other side, and with the sender's URLs.
func (h hello) context(ctx context.Context, urls []string) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, keyHello, h.String())
	for _, u := range urls {
		ctx = metadata.AppendToOutgoingContext(ctx, keyURL, u)
	}
	return ctx
}

// String is the form that travels.
func (h hello) String() string {
	return fmt.Sprintf("%d %x %x %x %x", protocolVersion, h.cluster, h.from, h.to, h.process)
}

// readHello finds the hello of an incoming stream.
func readHello(ctx context.Context) (h hello, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	texts := md.Get(keyHello)
	if len(texts) != 1 {
		return h, errors.New("the stream does not say whose it is")
	}
	return parseHello(texts[0])
}

// readURLs returns where whoever opened a stream listens, as far as it says so. What
// is no URL is left out: it is not worth a refusal.
func readURLs(ctx context.Context) (urls []url.URL) {
	md, _ := metadata.FromIncomingContext(ctx)
	for _, text := range md.Get(keyURL) {
		if u, err := url.Parse(text); err == nil && len(urls) < maxURLs {
			urls = append(urls, *u)
		}
	}
	return urls
}

// urlTexts returns URLs as they travel.
func urlTexts(urls []url.URL) (out []string) {
	for i := range urls {
		out = append(out, urls[i].String())
	}
	return out
}

func parseHello(text string) (h hello, err error) {
	var version int
	if _, err := fmt.Sscanf(text, "%d", &version); err != nil {
		return h, fmt.Errorf("cannot read the hello %q", text)
	}
	if version != protocolVersion {
		return h, fmt.Errorf("the stream has version %d, this member has %d", version, protocolVersion)
	}
	n, err := fmt.Sscanf(text, "%d %x %x %x %x", &version, &h.cluster, &h.from, &h.to, &h.process)
	if err != nil || n != 5 || h.process == 0 {
		return h, fmt.Errorf("cannot read the hello %q", text)
	}
	return h, nil
}

// answer is the header by which a stream is accepted.
func answer(process uint64) metadata.MD {
	return metadata.Pairs(keyProcess, strconv.FormatUint(process, 16))
}

// readAnswer finds the process in it; ok is false if the stream was refused.
func readAnswer(md metadata.MD) (process uint64, ok bool) {
	texts := md.Get(keyProcess)
	if len(texts) != 1 {
		return 0, false
	}
	process, err := strconv.ParseUint(texts[0], 16, 64)
	return process, err == nil && process != 0
}

// trailing is the part of a server's stream that say needs.
type trailing interface{ SetTrailer(metadata.MD) }

// say turns err into the status that the other side gets, as words.
func say(s trailing, err error) error {
	kind := saidRefused
	if errors.Is(err, ErrRemoved) {
		kind = saidRemoved
	}
	s.SetTrailer(metadata.Pairs(keySaid, kind))
	text := err.Error()
	if len(text) > maxWords {
		text = text[:maxWords] + "..."
	}
	return status.Error(codes.FailedPrecondition, text)
}

// heard turns the error of a client's stream into ErrRemoved, a *RemoteError, or
// leaves it: then the connection broke.
func heard(err error, trailer metadata.MD) error {
	said := trailer.Get(keySaid)
	if len(said) == 0 {
		return err
	}
	if said[0] == saidRemoved {
		return ErrRemoved
	}
	return &RemoteError{Text: status.Convert(err).Message()}
}
