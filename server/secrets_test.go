package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// secrets checks that no response on a connection contains a secret of a user or a lease.
type secrets struct {
	t *testing.T

	mu    sync.Mutex // guards the following fields
	known []secret
	seen  int // number of responses checked
}

// secret is data that must not be disclosed, with a description.
type secret struct {
	what string
	text []byte
}

// add registers a secret to look for.
func (s *secrets) add(what string, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = append(s.known, secret{what, text},
		secret{what + " in base64", []byte(base64.RawStdEncoding.EncodeToString(text))})
}

// look checks a response to a call.
func (s *secrets) look(method string, m proto.Message) {
	if strings.HasSuffix(method, "/Snapshot") {
		return // a backup contains password hashes, and only root can take one
	}
	b, err := proto.Marshal(m)
	if err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	for _, x := range s.known {
		if bytes.Contains(b, x.text) {
			s.t.Errorf("%s tells %s: %v", method, x.what, m)
		}
	}
}

// wereLookedFor fails the test if no response was checked.
func (s *secrets) wereLookedFor() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == 0 || len(s.known) == 0 {
		s.t.Errorf("%d answers and %d secrets", s.seen, len(s.known))
	}
}

type methodKey struct{}

// TagRPC implements stats.Handler.
func (*secrets) TagRPC(ctx context.Context, i *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, methodKey{}, i.FullMethodName)
}

// HandleRPC implements stats.Handler.
func (s *secrets) HandleRPC(ctx context.Context, r stats.RPCStats) {
	method, _ := ctx.Value(methodKey{}).(string)
	switch r := r.(type) {
	case *stats.InPayload:
		if m, ok := r.Payload.(proto.Message); ok {
			s.look(method, m)
		}
	case *stats.End:
		s.look(method, status.Convert(r.Error).Proto())
	}
}

// TagConn implements stats.Handler.
func (*secrets) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (*secrets) HandleConn(context.Context, stats.ConnStats) {}
