package listen

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
)

// jsonFactor multiplies the charge for a response in the JSON gateway, because the gateway holds
// the response in several forms.
const jsonFactor = 8

type accountKey struct{}

// ConnContext creates an account for a connection of an http.Server. It is for
// http.Server.ConnContext.
func (all *Answers) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, accountKey{}, all.account(c))
}

// Wrote records that bytes have been accepted by the client of an HTTP connection, or by the kernel
// on its behalf.
func Wrote(ctx context.Context, bytes int) {
	if a, ok := ctx.Value(accountKey{}).(*account); ok {
		a.written.Add(int64(bytes))
	}
}

// visit is an HTTP request to the JSON gateway. Its call goes over the gateway's own connection,
// but is charged to the client's account.
type visit struct {
	account *account
	sender  atomic.Pointer[sender] // the request's sender; nil if the request is not counted

	// Guarded by all.mu. answers contains the responses whose JSON is being encoded or written. A
	// stream has at most two: the last one and the one before it, which might not have been written
	// yet.
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

// visitHeader is the metadata key that carries the name of a call's visit. The name is secret,
// because gRPC clients could send the header as well.
const visitHeader = "leasehold-visit"

// Handler returns a handler for h, a JSON gateway. Its responses are charged to the client's
// connection until the request is done. The gateway's calls must include the outgoing metadata of
// the request's context.
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

// visit returns the gateway request that a call belongs to, or nil.
func (all *Answers) visit(ctx context.Context) *visit {
	names := metadata.ValueFromIncomingContext(ctx, visitHeader)
	if len(names) == 0 {
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.visits[names[0]]
}

// cost returns the number of bytes to charge for a response.
func (v *visit) cost(bytes int) int64 {
	if v != nil {
		bytes *= jsonFactor
	}
	return int64(bytes)
}

// keep stores the room of a response, and releases the room of the response before the last.
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
