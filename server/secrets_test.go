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

// secrets checks all responses of a connection: none contains a secret of a user or of a lease.
type secrets struct {
	t *testing.T

	mu    sync.Mutex // guards the following fields
	known []secret
	seen  int // answers
}

// secret is a text that must not be disclosed, with a description.
type secret struct {
	what string
	text []byte
}

// add makes a secret known.
func (s *secrets) add(what string, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = append(s.known, secret{what, text},
		secret{what + " in base64", []byte(base64.RawStdEncoding.EncodeToString(text))})
}

// look looks at an answer to a call.
func (s *secrets) look(method string, m proto.Message) {
	if strings.HasSuffix(method, "/Snapshot") {
		return // a backup has the hashes of passwords, and is for root alone
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

// wereLookedFor fails the test if nothing was checked.
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
