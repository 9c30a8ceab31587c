package web

import (
	"context"
	"net/http"
	"time"

	"leasehold.dev/internal/listen"
)

// A client has writePatience to read each writePiece bytes of a response. Data in the kernel's
// buffers counts as read. A client that stops reading is disconnected. A slow client is not, and an
// idle stream may be silent indefinitely.
const (
	writePatience = 30 * time.Second
	writePiece    = 16 << 10
)

// patient wraps h with write deadlines.
func patient(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &patientWriter{w, http.NewResponseController(w), r.Context()}
		p.until(time.Time{}) // clear any deadline left by the previous request
		h.ServeHTTP(p, r)
		p.until(time.Now().Add(writePatience)) // for data still in the server's buffer
	})
}

// patientWriter writes a response in pieces. Each piece has its own deadline.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context // the request's context
}

// until sets the write deadline. It ignores errors, because some connections, as in tests, do not
// support deadlines.
func (w *patientWriter) until(t time.Time) { _ = w.control.SetWriteDeadline(t) }

// Write implements http.ResponseWriter.
func (w *patientWriter) Write(b []byte) (n int, err error) {
	defer w.until(time.Time{}) // with HTTP/2, a deadline would also end an idle stream
	for {
		piece := b[n:min(n+writePiece, len(b))]
		w.until(time.Now().Add(writePatience))
		wrote, err := w.ResponseWriter.Write(piece)
		n += wrote
		listen.Wrote(w.ctx, wrote)
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// Flush implements http.Flusher.
func (w *patientWriter) Flush() {
	w.until(time.Now().Add(writePatience))
	_ = w.control.Flush() // the next Write also returns the error
	w.until(time.Time{})
}

// Unwrap gives http.ResponseController access to the connection.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
