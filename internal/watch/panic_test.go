package watch

import "testing"

// faulty is a view whose Events method panics.
type faulty struct{ *view }

func (faulty) Events(string, string, int64, int) ([]*event, int64, error) { panic("a fault") }

// TestPanicOfHistory checks that if reading history panics and the caller recovers, the stream is
// left unlocked and can be closed.
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
