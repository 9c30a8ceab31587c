package client

import (
	"errors"
	"sync"
)

// fate is what became of a lease under one token, shared by the Granted and all that was made
// of it. A nil fate knows nothing.
type fate struct {
	mu  sync.Mutex
	err error // why it must not be kept again; nil as long as it may
}

// end notes why the lease has ended, if that is for good: the program has given it away, or
// the cluster has said that it is gone. One that was only not kept may be kept again.
func (f *fate) end(why error) {
	if f == nil || !errors.Is(why, ErrRevoked) && !errors.Is(why, ErrHandedOver) &&
		!errors.Is(why, ErrLost) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = why
	}
}

// ended returns why the lease must not be kept again, nil if it may.
func (f *fate) ended() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
