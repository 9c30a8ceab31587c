package replica

import "errors"

// These errors say why a request has no outcome. All of them may be retried;
// ErrLeaderChanged alone may come for a command that takes effect later.
var (
	// ErrNoLeader means that this member does not lead and knows nobody who does; nothing was done.
	ErrNoLeader = errors.New("replica: no leader")
	// ErrLeaderChanged means that leadership was lost with the request under way.
	ErrLeaderChanged = errors.New("replica: leader changed")
	// ErrOverloaded means that too much is proposed and not yet committed; nothing was done.
	ErrOverloaded = errors.New("replica: too many requests")
	// ErrInternal means that a client sent a command that only the leader's timers may propose.
	ErrInternal = errors.New("replica: internal command from outside")
)
