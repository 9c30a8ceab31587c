package replica

import "errors"

// These errors say why a request has no outcome. All of them may be retried;
// ErrLeaderChanged alone may come for a command that takes effect later.
var (
	// ErrNoLeader means that no leader was found in time; nothing was done.
	ErrNoLeader = errors.New("replica: no leader")
	// ErrLeaderChanged means that the request was under way to a leader, and whether it was
	// done is not known.
	ErrLeaderChanged = errors.New("replica: leader changed")
	// ErrOverloaded means that too much is proposed and not yet committed; nothing was done.
	ErrOverloaded = errors.New("replica: too many requests")
	// ErrInternal means that a client sent a command that only the leader's timers may propose.
	ErrInternal = errors.New("replica: internal command from outside")
	// errWaiting means that the leader has a renewal, and will answer it. Only members hear it.
	errWaiting = errors.New("replica: the leader has not decided yet")
	// ErrTooLarge means that a command is larger than MaxCommand. It may not be retried.
	ErrTooLarge = errors.New("replica: command is too large")
	// ErrVersion means that the cluster version does not have a command, or something in it, and so
	// other members may not understand it; nothing was done.
	ErrVersion = errors.New("replica: the cluster version does not have this command")
	// ErrMessage means that bytes from another member are no message.
	ErrMessage = errors.New("replica: not a message")
	// ErrImpossible means that a message of another member cannot be: it contradicts what
	// is on this member's disk. The replica must not be used any more.
	ErrImpossible = errors.New("replica: what another member says cannot be")
	// ErrDamaged means that the majority of the voters has another state than this member. The
	// replica must not be used any more.
	ErrDamaged = errors.New("replica: the state of this member differs from that of the majority")
)

// These errors refuse a change of the membership that the cluster cannot afford
// now; nothing was done.
var (
	// ErrUnhealthy means that the change could cost the quorum: too few of the voters
	// are connected, or not for long enough.
	ErrUnhealthy = errors.New("replica: too few members are healthy")
	// ErrTooManyLearners means that the cluster has as many learners as it may.
	ErrTooManyLearners = errors.New("replica: too many learners")
	// ErrLearnerNotReady means that the learner to promote lags.
	ErrLearnerNotReady = errors.New("replica: learner is not in sync with the leader")
	// ErrBadTransferee means that leadership cannot go to the member named.
	ErrBadTransferee = errors.New("replica: member cannot lead")
)
