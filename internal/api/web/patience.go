package web

import (
	"context"
	"net/http"
	"time"

	"leasehold.dev/internal/listen"
)

// A client has writePatience to read each writePiece bytes of an answer, and so has the kernel
// between them. A client that reads nothing is cut off; one that reads slowly is not, and a
// stream on which nothing happens may be silent for as long as it likes.
const (
	writePatience = 30 * time.Second
	writePiece    = 16 << 10
)

// patient returns h, whose answers are written under deadlines.
func patient(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &patientWriter{w, http.NewResponseController(w), r.Context()}
		p.until(time.Time{}) // the request before it may have left one
		h.ServeHTTP(p, r)
		p.until(time.Now().Add(writePatience)) // for what the server has in a buffer
	})
}

// patientWriter is a response that is written in pieces, each with a deadline of its own.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context // of the request
}

// until sets the deadline. A connection that knows none, as in tests, needs none.
func (w *patientWriter) until(t time.Time) { _ = w.control.SetWriteDeadline(t) }

// Write implements http.ResponseWriter.
func (w *patientWriter) Write(b []byte) (n int, err error) {
	defer w.until(time.Time{}) // for HTTP/2 a deadline also ends a stream that is silent
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
	_ = w.control.Flush() // the next Write has the error, too
	w.until(time.Time{})
}

// Unwrap lets http.ResponseController reach the connection.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
