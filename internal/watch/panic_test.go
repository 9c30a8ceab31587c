package watch

import "testing"

// faulty is a view whose history cannot be read.
type faulty struct{ *view }

func (faulty) Events(string, string, int64, int) ([]*event, int64, error) { panic("a fault") }

// TestPanicOfHistory: a call that panics while it reads history, and is ended by the server of
// the call, leaves the stream unlocked, so that it can be closed.
func TestPanicOfHistory(t *testing.T) {
	hub := New(func() History[*event] { return faulty{&view{rev: 3}} }, Options{})
	s := hub.NewStream()
	mustWatch(t, s, Request{Key: "a", From: 1})
	func() {
		defer func() {
			if v := recover(); v != "a fault" {
				t.Errorf("it panicked with %v", v)
			}
		}()
		drain(t, s)
	}()
	s.Close()
}
