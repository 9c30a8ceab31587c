package listen

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"

	"google.golang.org/grpc/metadata"
)

type accountKey struct{}

// ConnContext gives a connection of an http.Server an account. It is its ConnContext.
func (all *Answers) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, accountKey{}, all.account(c))
}

// visit is a request of the JSON gateway. Its call has the gateway's connection to the member,
// but counts for the client's. A large answer has a turn of its connection until the request is
// over, and one of the member until the gateway writes it, as it is there in several forms: that
// does not depend on how fast a client reads.
type visit struct {
	account *account

	// Guarded by all.mu.
	debts []*debt
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

// enter takes a turn of the member.
func (v *visit) enter(ctx context.Context) error {
	all := v.account.all
	turn, err := all.making.enter(ctx)
	if err != nil {
		return err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if !v.takeLocked(turn) {
		turn.payLocked()
		all.making.grantLocked()
	}
	return nil
}

// takeLocked takes over a debt; ok is false if there is nothing that will pay it.
func (v *visit) takeLocked(d *debt) (ok bool) {
	if v == nil || v.over {
		return false
	}
	v.debts = append(v.debts, d)
	return true
}

// payLocked pays the debts, but the turn of the connection only if the request is over.
func (v *visit) payLocked() {
	kept := v.debts[:0]
	for _, d := range v.debts {
		if !v.over && d.turns > 0 && d.account == v.account {
			kept = append(kept, d)
			continue
		}
		d.payLocked()
	}
	v.debts = kept
	v.account.grantLocked()
	v.account.all.making.grantLocked()
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
