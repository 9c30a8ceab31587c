package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// checkLogin rejects a configuration with more than one identity.
func (c *Config) checkLogin() error {
	set := 0
	for _, text := range [...]string{c.User, c.Token, c.TokenFile} {
		if text != "" {
			set++
		}
	}
	switch {
	case set > 1:
		return errors.New("client: only one of User, Token and TokenFile may be set")
	case c.User == "" && c.Password != "":
		return errors.New("client: password set without a user")
	}
	return nil
}

const (
	// keyToken is the metadata key for the token of a call, as in etcd.
	keyToken = "token"
	// methodLogin is etcd's login method. It is the only part of etcd's API that the client uses.
	methodLogin = "/etcdserverpb.Auth/Authenticate"
)

// logins holds the token from a login. All members accept the same token.
type logins struct {
	user, password, fixed, file string // as in Config

	mu    sync.Mutex // guards token
	token string
}

// context adds the client's credential to the metadata of ctx, and also returns the token.
func (l *logins) context(
	ctx context.Context, conn grpc.ClientConnInterface,
) (_ context.Context, token string, err error) {
	switch {
	case l.user != "":
		token, err = l.logIn(ctx, conn)
	case l.file != "":
		token, err = readToken(l.file)
	default:
		token = l.fixed
	}
	if err != nil || token == "" {
		return ctx, "", err
	}
	return metadata.AppendToOutgoingContext(ctx, keyToken, token), token, nil
}

func readToken(file string) (string, error) {
	b, err := os.ReadFile(file)
	token := strings.TrimSpace(string(b))
	if err == nil && token == "" {
		err = fmt.Errorf("%s contains no token", file)
	}
	return token, err
}

// logIn returns the token from an earlier or a new login, or "" if the cluster has no users. Two
// connections can log in at the same time, because the client tries another member if the first one
// does not respond.
func (l *logins) logIn(ctx context.Context, conn grpc.ClientConnInterface) (string, error) {
	l.mu.Lock()
	token := l.token
	l.mu.Unlock()
	if token != "" {
		return token, nil
	}
	request := protowire.AppendTag(nil, 1, protowire.BytesType)
	request = protowire.AppendString(request, l.user)
	request = protowire.AppendTag(request, 2, protowire.BytesType)
	request = protowire.AppendString(request, l.password)
	var response []byte
	err := conn.Invoke(ctx, methodLogin, request, &response, grpc.ForceCodec(bytesCodec{}))
	switch {
	case status.Code(err) == codes.FailedPrecondition &&
		strings.Contains(err.Error(), "not enabled"):
		return "", nil
	case status.Code(err) == codes.InvalidArgument:
		return "", fmt.Errorf("%w: login as user %q was rejected: %w",
			ErrNotLoggedIn, l.user, plain(err))
	case err != nil:
		return "", err
	}
	if token = textOf(response, 2); token == "" {
		return "", fmt.Errorf("%w: the response contains no token", ErrNotLoggedIn)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.token = token
	return token, nil
}

// refused drops a token that a member has rejected. It returns the reason why the client cannot
// connect.
func (l *logins) refused(token string, why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == token {
		l.token = ""
	}
	switch {
	case l.user != "":
		return why // the client will log in again
	case l.fixed == "" && l.file == "":
		text := ErrNotLoggedIn.Error() + ": the cluster requires a login, but none is configured"
		return &plainError{text: text, err: errors.Join(ErrNotLoggedIn, why)}
	}
	return fmt.Errorf("%w: the token was rejected: %w", ErrNotLoggedIn, plain(why))
}

// textOf returns the value of a text field in a message, or "".
func textOf(b []byte, field protowire.Number) string {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return ""
		}
		b = b[n:]
		if number == field && kind == protowire.BytesType {
			text, _ := protowire.ConsumeString(b)
			return text
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return ""
		}
		b = b[n:]
	}
	return ""
}

// bytesCodec passes messages through unchanged.
type bytesCodec struct{}

var _ encoding.Codec = bytesCodec{}

// Marshal implements encoding.Codec.
func (bytesCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

// Unmarshal implements encoding.Codec.
func (bytesCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), b...)
	return nil
}

// Name implements encoding.Codec.
func (bytesCodec) Name() string { return "proto" }
