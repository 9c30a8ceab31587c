package app

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/internal/ticket"
	"leasehold.dev/lease"
)

// TestWaitingMessages checks the messages of a waiting command. They show the holder, the minimum
// time it has held the lock, and the number of waiters ahead. Text from other clients is escaped
// and truncated to the line, and each warning gets its own line. Nothing is printed in the first
// second, and nothing remains on the screen at the end.
func TestWaitingMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs bytes.Buffer
		a := &App{Process: Process{Stdout: &errs, Stderr: &errs}}
		said := func(want string) {
			t.Helper()
			a.Mu.Lock()
			defer a.Mu.Unlock()
			if got := errs.String(); got != want {
				t.Errorf("it said %q, want %q", got, want)
			}
			errs.Reset()
		}
		all := []place{
			{ticket.Ticket{Revision: 7, Key: "l/3"}, 3},
			{ticket.Ticket{Revision: 5, Key: "l/1"}, 1},
			{ticket.Ticket{Revision: 6, Key: "l/2"}, 2},
		}
		owners := map[lease.ID]string{1: "host-a\x1b"}
		var lost error
		w := &turn{
			name: "l", own: 3,
			places: func(context.Context) ([]place, error) {
				a.Mu.Lock()
				defer a.Mu.Unlock()
				return slices.Clone(all), lost
			},
			owner: func(_ context.Context, id lease.ID) string { return owners[id] },
		}
		width := 200
		end := a.showWaitingOn(&waitLine{w: &errs, width: func() int { return width }}, w.Text)
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		pass(waitQuietly - 1)
		said("")
		pass(1)
		said(ClearLine + `Waiting for "l", held by "host-a\x1b"; 1 waiting ahead of this one`)
		pass(waitLookEvery)
		said(ClearLine + `Waiting for "l", held by "host-a\x1b" for at least 2s; ` +
			`1 waiting ahead of this one`)
		a.Complain("No member responds\n")
		said(ClearLine + "No member responds\n")
		a.Complain("really\n")
		said("really\n")
		a.Mu.Lock()
		lost = errors.New("no answer")
		a.Mu.Unlock()
		pass(waitLookEvery)
		said(ClearLine + `Waiting for "l"`)
		a.Mu.Lock()
		lost, all = nil, []place{{ticket.Ticket{Revision: 6, Key: "l/2"}, 2}}
		width = 30
		a.Mu.Unlock()
		pass(waitLookEvery)
		said(ClearLine + `Waiting for "l", held by leas`)
		a.Say("%s", "an answer\n")
		said(ClearLine + "an answer\n")
		pass(waitLookEvery)
		said(ClearLine + `Waiting for "l", held by leas`)
		end()
		said(ClearLine)
		a.Complain("done\n")
		said("done\n")
	})
}

// TestNoWaitingMessage checks that a command prints nothing if it waits less than a second or does
// not have to wait.
func TestNoWaitingMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs bytes.Buffer
		a := &App{Process: Process{Stderr: &errs}}
		line := func() *waitLine { return &waitLine{w: &errs, width: func() int { return 80 }} }
		end := a.showWaitingOn(line(), func(context.Context) string { return "Waiting" })
		time.Sleep(waitQuietly / 2)
		end()
		w := &turn{name: "l", own: 3, places: func(context.Context) ([]place, error) {
			return []place{{ticket.Ticket{Revision: 1, Key: "l/3"}, 3}}, nil
		}}
		end = a.showWaitingOn(line(), w.Text)
		time.Sleep(waitQuietly)
		synctest.Wait()
		end()
		if errs.Len() > 0 {
			t.Errorf("it said %q", errs.String())
		}
		stuck := make(chan struct{})
		end = a.showWaitingOn(line(), func(ctx context.Context) string {
			close(stuck)
			<-ctx.Done()
			return "too late"
		})
		<-stuck
		end() // does not wait for a response
		if strings.Contains(errs.String(), "late") {
			t.Errorf("it said %q", errs.String())
		}
	})
}
