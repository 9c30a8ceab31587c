package listen

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"

	"google.golang.org/grpc/metadata"
)

// jsonFactor is how many times its length an answer counts until its JSON is made. While that is
// made the answer is there in several forms.
const jsonFactor = 8

type accountKey struct{}

// ConnContext gives a connection of an http.Server an account. It is its ConnContext.
func (all *Answers) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, accountKey{}, all.account(c))
}

// Wrote says that the client of a connection of HTTP has taken bytes, or the kernel for it.
func Wrote(ctx context.Context, bytes int) {
	if a, ok := ctx.Value(accountKey{}).(*account); ok {
		a.written.Add(int64(bytes))
	}
}

// visit is a request of the JSON gateway. Its call has the gateway's connection to the member,
// but counts for the client's.
type visit struct {
	account *account

	// Guarded by all.mu.
	reserved []*reservation // for answers of which JSON is made, in their order
	stream   bool
	over     bool
}

// visitKey is the metadata of a call that names its visit. The name is a secret: a client of gRPC
// could send one, too.
const visitKey = "leasehold-visit"

// Handler returns h, a JSON gateway, whose answers count for the connection of the client. The
// gateway's calls must have the outgoing metadata of the request's context.
func (all *Answers) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{account: all.call(r.Context()).account}
		name := rand.Text()
		all.mu.Lock()
		all.visits[name] = v
		all.mu.Unlock()
		defer func() {
			all.mu.Lock()
			defer all.mu.Unlock()
			delete(all.visits, name)
			v.over = true
			v.releaseLocked()
		}()
		ctx := metadata.AppendToOutgoingContext(r.Context(), visitKey, name)
		h.ServeHTTP(&countedWriter{w, v}, r.WithContext(ctx))
	})
}

// visit returns the request that a call is made for; nil if there is none.
func (all *Answers) visit(ctx context.Context) *visit {
	names := metadata.ValueFromIncomingContext(ctx, visitKey)
	if len(names) == 0 {
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.visits[names[0]]
}

// take takes over the reservation of an answer.
func (v *visit) take(r *reservation) {
	v.account.all.mu.Lock()
	defer v.account.all.mu.Unlock()
	v.reserved = append(v.reserved, r)
	if v.over {
		v.releaseLocked()
	}
}

// releaseLocked releases what is reserved.
func (v *visit) releaseLocked() {
	for _, r := range v.reserved {
		r.releaseLocked()
	}
	v.reserved = nil
	v.account.queueLocked()
	v.account.all.grantLocked()
}

// countedWriter counts what it is given until it is written.
type countedWriter struct {
	http.ResponseWriter
	visit *visit
}

// Write implements http.ResponseWriter.
func (w *countedWriter) Write(p []byte) (int, error) {
	defer w.visit.write(len(p)).release()
	return w.ResponseWriter.Write(p)
}

// write counts bytes of JSON, in the place of the answer of which they are made. Of a stream only
// large messages have been counted.
func (v *visit) write(bytes int) *reservation {
	v.account.all.mu.Lock()
	defer v.account.all.mu.Unlock()
	if len(v.reserved) == 0 || v.stream && bytes < largeAnswer {
		return v.account.reserveLocked(int64(bytes))
	}
	first := v.reserved[0]
	v.reserved = v.reserved[1:]
	first.releaseLocked()
	r := v.account.chargeLocked(first.room, int64(bytes))
	v.account.queueLocked()
	v.account.all.grantLocked()
	return r
}

// Unwrap lets http.ResponseController reach the connection.
func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
