package web

import (
	"context"
	"net/http"
	"time"

	"leasehold.dev/internal/listen"
)

// A client has writePatience to read each writePiece bytes of an answer, including the kernel's
// buffers. A client that reads nothing is cut off; a slow one is not, and an idle stream may be
// silent indefinitely.
const (
	writePatience = 30 * time.Second
	writePiece    = 16 << 10
)

// patient returns h with write deadlines.
func patient(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &patientWriter{w, http.NewResponseController(w), r.Context()}
		p.until(time.Time{}) // the previous request may have left one
		h.ServeHTTP(p, r)
		p.until(time.Now().Add(writePatience)) // for data in the server's buffer
	})
}

// patientWriter writes a response in pieces, each with its own deadline.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context // of the request
}

// until sets the deadline. A connection without deadlines, as in tests, needs none.
func (w *patientWriter) until(t time.Time) { _ = w.control.SetWriteDeadline(t) }

// Write implements http.ResponseWriter.
func (w *patientWriter) Write(b []byte) (n int, err error) {
	defer w.until(time.Time{}) // with HTTP/2 a deadline would also end an idle stream
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
	_ = w.control.Flush() // the next Write returns the error, too
	w.until(time.Time{})
}

// Unwrap lets http.ResponseController reach the connection.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
