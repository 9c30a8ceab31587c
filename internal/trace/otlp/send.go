package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"leasehold.dev/internal/trace"
)

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 10

// send sends a batch, and tries again what may then be taken. It counts what became of the batch,
// unless ctx ended: then that is the error, and nothing is counted.
func (e *Exporter) send(ctx context.Context, batch []trace.Span, patience time.Duration) error {
	body := trace.AppendRequest(nil, e.o.Resource, e.o.Release, batch)
	end := time.Now().Add(patience)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		rejected, err := e.try(ctx, body)
		if err == nil {
			no := int(min(rejected.spans, int64(len(batch))))
			e.sent.Add(float64(len(batch) - no))
			e.drop(refused, no)
			return rejected.err()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var no *refusal
		isRefusal := errors.As(err, &no)
		left := time.Until(end)
		if isRefusal && !no.again || left <= 0 {
			reason := unsent
			if isRefusal {
				reason = refused
			}
			e.drop(reason, len(batch))
			return err
		}
		e.tell(err) // others are dropped soon
		wait := pause
		if isRefusal {
			wait = max(wait, no.after)
		}
		timer := time.NewTimer(min(wait, left))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// rejection is what a collector says of spans that it did not take of a batch that it took.
type rejection struct {
	spans int64 // not negative; it may be any
	why   string
}

func (r rejection) err() error {
	if r.spans == 0 {
		return nil
	}
	return fmt.Errorf("it did not take %d spans: %.200q", r.spans, r.why)
}

// refusal is an answer that says that nothing was taken.
type refusal struct {
	status string
	again  bool          // it may be taken later
	after  time.Duration // not before
}

// Error implements error.
func (r *refusal) Error() string { return "it answered " + r.status }

// later are the answers after which OTLP has clients try again.
var later = []int{
	http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
	http.StatusGatewayTimeout,
}

// try sends a request, once.
func (e *Exporter) try(ctx context.Context, body []byte) (rejection, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	header, err := e.headers()
	if err != nil {
		return rejection{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return rejection{}, err
	}
	r.Header = header
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("User-Agent", "leasehold/"+e.o.Release)
	answer, err := e.client.Do(r)
	if err != nil {
		return rejection{}, err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // if it breaks off, it says nothing
	if answer.StatusCode/100 != 2 {
		return rejection{}, &refusal{
			status: strconv.Itoa(answer.StatusCode), again: slices.Contains(later, answer.StatusCode),
			after: retryAfter(answer.Header.Get("Retry-After"), time.Now()),
		}
	}
	n, why := trace.Rejected(text)
	return rejection{n, why}, nil
}

// retryAfter reads a header Retry-After: seconds or a date.
func retryAfter(text string, now time.Time) time.Duration {
	if s, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return at.Sub(now)
	}
	return 0
}

// headers reads the file of headers.
func (e *Exporter) headers() (http.Header, error) {
	h := http.Header{}
	if e.o.HeadersFile == "" {
		return h, nil
	}
	text, err := os.ReadFile(e.o.HeadersFile)
	if err != nil {
		return nil, err
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("%s: line %d is not \"Name: value\"", e.o.HeadersFile, n)
		}
		h.Add(name, value)
	}
	return h, nil
}
