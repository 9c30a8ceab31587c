package listen

import (
	"context"
	"sync"
)

// Kept counts the bytes that a relay keeps for a call: requests that have not been sent to a
// member, and responses that the client has not read. They count as unread responses of the
// client's connection.
type Kept struct {
	account *account

	mu      sync.Mutex // guards the fields below
	bytes   int
	counted int // bytes charged to the account, a multiple of keptStep
}

// keptStep is large, so that most short messages need not lock the account.
const keptStep = 4 << 10

// Kept returns a Kept for a call.
func (all *Answers) Kept(ctx context.Context) *Kept {
	return &Kept{account: all.call(ctx).account}
}

// Add adds a number of bytes, which can be negative. It does not block. If the connection has far
// too many bytes, it is closed.
func (k *Kept) Add(bytes int) {
	k.mu.Lock()
	k.bytes += bytes
	more := k.bytes/keptStep*keptStep - k.counted
	k.counted += more
	k.mu.Unlock()
	if more == 0 {
		return
	}
	a := k.account
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.chargeLocked(int64(more))
	if more > 0 {
		a.boundLocked()
	} else {
		a.all.grantLocked()
	}
}

// Hold waits until there is room for a request, unless the request is small, and counts the
// request. The caller must call added for each part of the request that Add has counted. It must
// call release once Add has counted the whole request, or if the request is dropped.
func (k *Kept) Hold(
	ctx context.Context, bytes int,
) (added func(bytes int), release func(), err error) {
	if bytes < smallAnswer {
		return func(int) {}, func() {}, nil
	}
	r := k.account.ask(int64(bytes), false)
	if err := r.await(ctx); err != nil {
		return nil, nil, err
	}
	return r.shrink, r.release, nil
}
