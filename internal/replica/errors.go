package replica

import "errors"

// These errors explain why a request has no outcome. Requests may be retried after any of them.
// Only after ErrLeaderChanged may the command still take effect.
var (
	// ErrNoLeader means that no leader was found in time; nothing changed.
	ErrNoLeader = errors.New("replica: no leader")
	// ErrLeaderChanged means that the request was sent to a leader, and its outcome is unknown.
	ErrLeaderChanged = errors.New("replica: leader changed")
	// ErrOverloaded means that too much is proposed and not yet committed; nothing changed.
	ErrOverloaded = errors.New("replica: too many requests")
	// ErrInternal means that a client sent a command that only the leader's timers may propose.
	ErrInternal = errors.New("replica: client sent an internal command")
	// errWaiting means that the leader has a renewal and will answer it later. Only members see it.
	errWaiting = errors.New("replica: the leader has not decided yet")
	// ErrTooLarge means that a command is larger than MaxCommand. It may not be retried.
	ErrTooLarge = errors.New("replica: command is too large")
	// ErrVersion means that the cluster version lacks the command, or something in it, so that
	// other members may not understand it; nothing changed.
	ErrVersion = errors.New("replica: the cluster version does not support this command")
	// ErrMessage means that bytes from another member are not a message.
	ErrMessage = errors.New("replica: not a message")
	// ErrImpossible means that a message from another member contradicts what is on this member's
	// disk. The replica must not be used any more.
	ErrImpossible = errors.New("replica: a message contradicts this member's disk")
	// ErrDamaged means that the state of the majority of the voters differs from this member's. The
	// replica must not be used any more.
	ErrDamaged = errors.New("replica: the state of this member differs from that of the majority")
)

// These errors reject a change of the membership that is not safe for the cluster now; nothing
// changed.
var (
	// ErrUnhealthy means that the change could cost the quorum: too few voters are connected, or
	// have been connected for long enough.
	ErrUnhealthy = errors.New("replica: too few members are healthy")
	// ErrTooManyLearners means that the cluster already has the maximum number of learners.
	ErrTooManyLearners = errors.New("replica: too many learners")
	// ErrLearnerNotReady means that the learner to promote is behind.
	ErrLearnerNotReady = errors.New("replica: learner is not in sync with the leader")
	// ErrBadTransferee means that the named member cannot lead.
	ErrBadTransferee = errors.New("replica: member cannot lead")
)
