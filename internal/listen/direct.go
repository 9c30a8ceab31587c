package listen

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/direct"
)

// Stream creates the account for a connection that carries one stream without HTTP/2. It implements
// direct.Requests. If the connection must be closed, end is called.
func (all *Requests) Stream(
	ctx context.Context, from string, end func(),
) (context.Context, direct.Account, error) {
	s := all.sender(from, func(error) { end() })
	in := &incoming{Context: ctx, sender: s, isStream: true}
	in.isReading.Store(true)
	if err := s.admit(ctx); err != nil {
		s.close()
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[0] = in
	if !s.known.Load() {
		s.lookLocked() // waits for the first message
	}
	return in, directAccount{in}, nil
}

// directAccount implements direct.Account.
type directAccount struct{ in *incoming }

// Wait implements direct.Account.
func (a directAccount) Wait() error { return a.in.sender.wait(a.in) }

// Came implements direct.Account.
func (a directAccount) Came() {
	s := a.in.sender
	if s.known.Load() {
		return
	}
	s.opens++
	s.mu.Lock()
	defer s.mu.Unlock()
	a.in.spoke = true
}

// Hold implements direct.Account.
func (a directAccount) Hold(bytes int) (release func(), err error) {
	cost := frameCost(bytes)
	tooMuch := a.count(cost)
	if err := a.in.sender.check(tooMuch); err != nil {
		return nil, status.Error(codes.ResourceExhausted, "leasehold: "+err.Error())
	}
	return func() { a.count(-cost) }, nil
}

// count adds a number of bytes, which can be negative, and reports whether the sender now holds too
// many.
func (a directAccount) count(cost int64) (tooMuch bool) {
	s := a.in.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return false
	}
	if a.in.begun == 0 {
		a.in.beats.Store(0)
	}
	a.in.begun += cost
	s.addLocked(cost)
	if a.in.begun > 0 {
		s.lookLocked()
	}
	return s.holdsTooMuchLocked()
}

// Close implements direct.Account.
func (a directAccount) Close() { a.in.sender.close() }
