package listen

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
)

// jsonFactor is the multiple of its length that an answer counts in the JSON gateway, which keeps
// it in several forms.
const jsonFactor = 8

type accountKey struct{}

// ConnContext gives a connection of an http.Server an account. It is for http.Server.ConnContext.
func (all *Answers) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, accountKey{}, all.account(c))
}

// Wrote records that the client of an HTTP connection, or the kernel for it, has accepted bytes.
func Wrote(ctx context.Context, bytes int) {
	if a, ok := ctx.Value(accountKey{}).(*account); ok {
		a.written.Add(int64(bytes))
	}
}

// visit is a request of the JSON gateway. Its call uses the gateway's own connection, but counts
// for the client's.
type visit struct {
	account *account
	sender  atomic.Pointer[sender] // of the request; nil if that is not counted

	// Guarded by all.mu: answers whose JSON is being encoded or written. A stream has at most two,
	// the last one and the one before it, which may not be written yet.
	answers [2]*room
	over    bool
}

type visitKey struct{}

// accountOf returns the account of a call over HTTP, or nil.
func accountOf(ctx context.Context) *account {
	if v := visitOf(ctx); v != nil {
		return v.account
	}
	a, _ := ctx.Value(accountKey{}).(*account)
	return a
}

// visitOf returns the gateway's request that a call belongs to, or nil.
func visitOf(ctx context.Context) *visit {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.visit
	}
	if s, ok := ctx.Value(streamKey{}).(*accountedStream); ok {
		return s.call.visit
	}
	return nil
}

// visitHeader is the metadata of a call that names its visit. The name is secret, because a gRPC
// client could send the header, too.
const visitHeader = "leasehold-visit"

// Handler returns h, a JSON gateway, whose answers count for the connection of the client until the
// request is done. The gateway's calls must have the outgoing metadata of the request's context.
func (all *Answers) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{account: all.call(r.Context()).account}
		name := rand.Text()
		all.mu.Lock()
		all.visits[name] = v
		all.mu.Unlock()
		defer func() {
			all.mu.Lock()
			delete(all.visits, name)
			v.over = true
			all.mu.Unlock()
			v.keep(nil)
			v.keep(nil)
		}()
		ctx := metadata.AppendToOutgoingContext(r.Context(), visitHeader, name)
		h.ServeHTTP(w, r.WithContext(context.WithValue(ctx, visitKey{}, v)))
	})
}

// visit returns the request that a call belongs to, or nil.
func (all *Answers) visit(ctx context.Context) *visit {
	names := metadata.ValueFromIncomingContext(ctx, visitHeader)
	if len(names) == 0 {
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.visits[names[0]]
}

// cost returns the bytes that an answer counts for.
func (v *visit) cost(bytes int) int64 {
	if v != nil {
		bytes *= jsonFactor
	}
	return int64(bytes)
}

// keep stores the room of an answer, and releases that of the one before the last.
func (v *visit) keep(r *room) {
	v.account.all.mu.Lock()
	drop := v.answers[0]
	if v.over && r != nil {
		drop = r
	} else {
		v.answers = [2]*room{v.answers[1], r}
	}
	v.account.all.mu.Unlock()
	drop.release()
}
