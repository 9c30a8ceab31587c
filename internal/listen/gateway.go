package listen

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"

	"google.golang.org/grpc/metadata"
)

// maxJSON is of how many large answers the member makes JSON at the same time.
const maxJSON = 16

type accountKey struct{}

// ConnContext gives a connection of an http.Server an account. It is its ConnContext.
func (all *Answers) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, accountKey{}, all.account(c))
}

// visit is a request of the JSON gateway. Its call has the gateway's connection to the member,
// but counts for the client's. While the gateway makes JSON of a large answer it is there in
// several forms, so only some are made at a time; that does not depend on how fast clients read.
type visit struct {
	account *account

	// Guarded by all.mu.
	debts []*debt
	makes bool // JSON, of a large answer
	over  bool
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
			v.payLocked()
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

// take takes over the debt of an answer of so many bytes, and waits until JSON may be made of it.
func (v *visit) take(ctx context.Context, d *debt, bytes int) error {
	all := v.account.all
	all.mu.Lock()
	v.debts = append(v.debts, d)
	if v.over {
		v.payLocked()
	}
	all.mu.Unlock()
	if bytes < largeAnswer {
		return nil
	}
	select {
	case all.json <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if v.over || v.makes {
		<-all.json
	} else {
		v.makes = true
	}
	return nil
}

// payLocked pays the debts: the JSON is made, or the request is over.
func (v *visit) payLocked() {
	for _, d := range v.debts {
		d.payLocked()
	}
	v.debts = nil
	if v.makes {
		v.makes = false
		<-v.account.all.json
	}
}

// countedWriter counts what it is given until it is written.
type countedWriter struct {
	http.ResponseWriter
	visit *visit
}

// Write implements http.ResponseWriter.
func (w *countedWriter) Write(p []byte) (int, error) {
	defer w.visit.write(len(p)).pay()
	return w.ResponseWriter.Write(p)
}

// write counts bytes that take the place of the answer.
func (v *visit) write(bytes int) *debt {
	v.account.all.mu.Lock()
	defer v.account.all.mu.Unlock()
	v.payLocked()
	return v.account.oweLocked(bytes)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
