package direct

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// head is metadata as it is sent.
type head = metadata.MD

const (
	keyStatus  = "grpc-status"
	keyDetails = "grpc-status-details-bin"
	binary64   = "-bin" // suffix of names whose values can contain arbitrary bytes
	lineCost   = 32     // overhead of a line, as in HTTP/2 (RFC 7541, 4.1)
)

// encodeHead returns metadata as lines, sorted by name.
func encodeHead(md head) (string, error) {
	names := make([]string, 0, len(md))
	for name := range md {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		for _, value := range md[name] {
			if strings.HasSuffix(name, binary64) {
				value = base64.RawStdEncoding.EncodeToString([]byte(value))
			}
			if !printable(value) || strings.ContainsAny(name, ": \r\n") {
				return "", fmt.Errorf("direct: metadata %q contains bytes that cannot be sent", name)
			}
			fmt.Fprintf(&b, "%s: %s\r\n", name, value)
		}
	}
	if b.Len() > maxHead {
		return "", fmt.Errorf("direct: metadata too long: %d bytes; the limit is %d", b.Len(), maxHead)
	}
	return b.String(), nil
}

// printable reports whether a value is allowed by gRPC.
func printable(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
}

// parseHead is the inverse of encodeHead.
func parseHead(text string) (head, error) {
	md := make(head)
	for cost := 0; text != ""; {
		line, rest, ok := strings.Cut(text, "\r\n")
		name, value, named := strings.Cut(line, ": ")
		if !ok || !named || name == "" || !printable(name) || !printable(value) {
			return nil, errors.New("direct: a line of metadata is not \"name: value\"")
		}
		if cost += len(name) + len(value) + lineCost; cost > maxHead {
			return nil, errors.New("direct: too many lines of metadata")
		}
		text, name = rest, strings.ToLower(name)
		if strings.HasSuffix(name, binary64) {
			raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
			if err != nil {
				return nil, fmt.Errorf("direct: metadata %q: %w", name, err)
			}
			value = string(raw)
		}
		md[name] = append(md[name], value)
	}
	return md, nil
}

// mostDetails limits the details of a stream's outcome. It leaves room for other metadata.
const mostDetails = maxHead / 4

// encodeEnd returns metadata that contains the outcome of a stream.
func encodeEnd(err error) head {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	details, err := proto.Marshal(s.Proto())
	if err != nil || len(details) > mostDetails { // the text may be too long or invalid UTF-8
		text := s.Message()
		text = strings.ToValidUTF8(text[:min(len(text), mostDetails-16)], "")
		// always succeeds
		details, _ = proto.Marshal(&spb.Status{Code: int32(s.Code()), Message: text})
	}
	return head{
		keyStatus: {fmt.Sprint(int(s.Code()))}, keyDetails: {string(details)},
	}
}

// decodeEnd is the inverse of encodeEnd. ended reports whether the metadata marks the end of a
// stream.
func decodeEnd(md head) (ended bool, err error) {
	if len(md[keyStatus]) == 0 {
		return false, nil
	}
	s := new(spb.Status)
	if details := md[keyDetails]; len(details) == 0 || proto.Unmarshal([]byte(details[0]), s) != nil {
		return true, status.Error(codes.Internal,
			"direct: the server ended the stream with an invalid status")
	}
	return true, status.ErrorProto(s)
}
