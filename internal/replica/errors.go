package replica

import "errors"

// These errors explain why a request has no outcome. Except where noted, the request can be
// retried. After ErrLeaderChanged, the command may still take effect. After the other errors, it
// cannot.
var (
	// ErrNoLeader means that no leader was found in time; nothing changed.
	ErrNoLeader = errors.New("replica: no leader")
	// ErrLeaderChanged means that the request was sent to a leader, and its outcome is unknown.
	ErrLeaderChanged = errors.New("replica: leader changed")
	// ErrOverloaded means that too many commands are proposed but not yet committed; nothing
	// changed.
	ErrOverloaded = errors.New("replica: too many requests")
	// ErrInternal means that a client sent a command that only the leader's timers can propose.
	ErrInternal = errors.New("replica: client sent an internal command")
	// errWaiting means that the leader has the renewal and will answer it later. It is used only
	// between members.
	errWaiting = errors.New("replica: the leader has not decided yet")
	// ErrTooLarge means that a command is larger than MaxCommand. Do not retry it.
	ErrTooLarge = errors.New("replica: command is too large")
	// ErrVersion means that the cluster version does not include the command or one of its fields,
	// so other members might not understand it; nothing changed.
	ErrVersion = errors.New("replica: the cluster version does not support this command")
	// ErrMessage means that bytes received from another member are not a valid message.
	ErrMessage = errors.New("replica: invalid message")
	// ErrImpossible means that a message from another member contradicts what is on this member's
	// disk. The replica must not be used after this error.
	ErrImpossible = errors.New("replica: a message contradicts the data on this member's disk")
	// ErrDamaged means that this member's state differs from the state of the majority of voters.
	// The replica must not be used after this error.
	ErrDamaged = errors.New("replica: the state of this member differs from that of the majority")
)

// These errors reject a membership change that would not be safe for the cluster now; nothing
// changed.
var (
	// ErrUnhealthy means that the change could cost the cluster its quorum: too few voters are
	// connected, or too few have been connected for long enough.
	ErrUnhealthy = errors.New("replica: too few members are healthy")
	// ErrTooManyLearners means that the cluster already has the maximum number of learners.
	ErrTooManyLearners = errors.New("replica: too many learners")
	// ErrLearnerNotReady means that the learner to be promoted lags too far behind the leader.
	ErrLearnerNotReady = errors.New("replica: learner is not in sync with the leader")
	// ErrBadTransferee means that the named member cannot lead.
	ErrBadTransferee = errors.New("replica: member cannot lead")
)
