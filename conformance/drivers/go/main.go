// Command go is the conformance suite's driver for the Go client. See conformance/README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/members"
)

// request is a line sent by the suite.
type request struct {
	ID   int    `json:"id"`
	Op   string `json:"op"`
	Args args   `json:"args"`
}

// object is an answer.
type object map[string]any

// codes maps errors to the suite's names for them. The first match wins.
var codes = []struct {
	err  error
	code string
}{
	{client.ErrUnknownOutcome, "UNKNOWN_OUTCOME"},
	{client.ErrReleased, "RELEASED"},
	{lock.ErrLocked, "LOCKED"},
	{lock.ErrInUse, "IN_USE"},
	{client.ErrLost, "LOST"},
	{client.ErrExpired, "EXPIRED"},
	{members.ErrExists, "EXISTS"},
	{client.ErrLeaseNotFound, "LEASE_NOT_FOUND"},
	{client.ErrNameTaken, "NAME_TAKEN"},
	{client.ErrIDTaken, "ID_TAKEN"},
	{client.ErrKeyNotFound, "KEY_NOT_FOUND"},
	{client.ErrTooManyKeys, "TOO_MANY_KEYS"},
	{client.ErrFutureRevision, "FUTURE_REVISION"},
	{client.ErrCompacted, "COMPACTED"},
	{client.ErrNoSpace, "NO_SPACE"},
	{client.ErrLimitReached, "LIMIT_REACHED"},
	{client.ErrPermissionDenied, "PERMISSION_DENIED"},
	{client.ErrNotLoggedIn, "NOT_LOGGED_IN"},
	{client.ErrInvalid, "INVALID"},
	{client.ErrClosed, "CLOSED"},
	{client.ErrUnavailable, "UNAVAILABLE"},
	{context.DeadlineExceeded, "UNAVAILABLE"},
}

func codeOf(err error) string {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return "DRIVER"
}

func main() {
	d := &driver{things: map[string]any{}}
	in := bufio.NewReader(os.Stdin)
	var mu sync.Mutex // guards writes to standard output
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		go func() {
			answer := d.answer(&r)
			mu.Lock()
			defer mu.Unlock()
			_ = out.Encode(answer) // the suite may have exited
		}()
	}
}

// answer handles a request. An invalid request is reported as an error of the driver. An example is
// a request for an object created before the driver started.
func (d *driver) answer(r *request) (answer object) {
	defer func() {
		if p := recover(); p != nil {
			answer = object{"id": r.ID, "error": object{"code": "DRIVER", "message": fmt.Sprint(p)}}
		}
	}()
	f := operations[r.Op]
	ctx, cancel := context.WithTimeout(context.Background(), d.limit(r.Args))
	defer cancel()
	ok, err := f(d, ctx, r.Args)
	if err != nil {
		return object{"id": r.ID, "error": object{"code": codeOf(err), "message": err.Error()}}
	}
	if ok == nil {
		ok = object{}
	}
	ok["at"] = monotonic()
	return object{"id": r.ID, "ok": ok}
}

// monotonic returns the time in milliseconds on the clock that all processes of the machine share.
func monotonic() float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return float64(t.Nano()) / 1e6
}

// limit returns the timeout of a request. Requests that wait for other clients have none.
func (d *driver) limit(a args) time.Duration {
	if a.has("timeout_ms") {
		return a.ms("timeout_ms")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.call > 0 {
		return d.call
	}
	return 2 * time.Minute
}
