package lease

import "math"

// ID identifies a lease. The ID of a live lease is above zero.
type ID int64

// TTL is a lifetime in milliseconds.
type TTL int64

// Instant is a point on the engine's clock: milliseconds since some fixed origin, rounded down,
// never negative. It is not wall time.
type Instant int64

// Token is a fencing token: larger than that of every earlier grant, never
// used twice. Its high 16 bits are the generation (see [State]).
type Token uint64

// Terms are the terms of a grant.
type Terms struct {
	// ID of the lease, chosen by the proposer of the grant; above zero.
	ID ID
	// TTL is how long the lease lives after a grant or renewal.
	TTL TTL
	// Name, if not empty, is held by at most one live lease.
	Name string
	// Owner is the holder's label. It grants no permissions.
	Owner string
	// Principal, if not empty, is the user that the lease belongs to. The engine uses it only to
	// recognize a repeated request, which has the same Principal.
	Principal string
	// RequestID, if not empty, distinguishes a repeated request from a second one (T3).
	RequestID string
	// Labels are free for the owner's use.
	Labels map[string]string
	// LockDelay is how long the name and the keys stay taken after the lease has expired, so that
	// requests of the old holder that are still in flight cannot mix with those of the next. 0
	// means no delay.
	LockDelay TTL
	// If KeepKeys is set, the keys are detached and stay when the lease expires. A revocation still
	// deletes them.
	KeepKeys bool
	// If Bound is set, the lease exists for one key only. It accepts no second key. When that key
	// is detached, the caller ends the lease by Lessor.Loose and Lessor.Revoke.
	Bound bool
	// Secret, if not zero, is the secret that Lessor.Resume requires.
	Secret Secret
}

// Secret is the hash of the secret with which another process can resume a lease. Zero means that
// no process can. The engine only compares hashes.
type Secret [32]byte

// Info is a copy of a lease's replicated record.
type Info struct {
	Terms
	// Token is the fencing token of this grant.
	Token Token
	// Remaining is the remaining time at the last checkpoint; 0 means that the lease is not
	// checkpointed. It does not count down: see [Lessor.Remaining].
	Remaining TTL
	// Stamp grows with every replicated change of the lease, except when a checkpoint is set.
	Stamp uint64
	// Delayed is true while the lock delay of an expired lease runs: only its name and keys still
	// exist. Remaining is then that of the delay.
	Delayed bool
}

// Ended describes what remains to be done after the end of a lease.
type Ended struct {
	// Info is the current state of the lease or, if it has ended, its last state.
	Info
	// Gone is true if the lease was removed. Otherwise its lock delay has begun, and there is
	// nothing to do yet.
	Gone bool
	// Keys are the keys that were attached, sorted. They are detached now. The caller deletes
	// them, unless Keep is set.
	Keys []string
	// Keep is true if the keys stay (see Terms.KeepKeys). It has no meaning without Keys.
	Keep bool
	// Account is the account of a lease that was removed: see [Lessor.Charge].
	Account string
}

// Due is the decision to expire a lease in its state at the decision. A lease that has changed
// since has another Token or Stamp.
type Due struct {
	ID    ID
	Token Token
	Stamp uint64
	// Late is the delay between the expiry of the lease and the decision. It is only a measurement:
	// Expire ignores it, and it need not be replicated.
	Late TTL
}

// Checkpoint replicates the remaining time of a silent lease. Remaining 0 clears the checkpoint,
// because the holder has renewed again.
type Checkpoint struct {
	ID        ID
	Token     Token
	Remaining TTL
	// Stamp is the lease's stamp when it was found silent. If the lease has changed since, the
	// checkpoint is not set, because the TTL may have restarted. 0 means any stamp; clearing
	// ignores it.
	Stamp uint64
}

// Renewal is the outcome of a successful Renew.
type Renewal struct {
	// TTL is the TTL, which starts at the instant of the renewal.
	TTL TTL
	// Token is the token of the renewed lease.
	Token Token
	// Clear is true if the lease is checkpointed, or will be when a proposed checkpoint is applied.
	// Another primary would end it by the old countdown. So the renewal may be acknowledged only
	// after a Checkpoint that clears this one has been applied.
	Clear bool
}

// Config configures a Lessor. TTL bounds and MaxKeys are checked when a command is applied, so
// every member must have the same.
type Config struct {
	// MinTTL and MaxTTL bound the TTL of a grant. Zero means 1 ms and
	// 9,000,000,000 s.
	MinTTL, MaxTTL TTL
	// CheckpointInterval bounds the silence before a checkpoint, and the time between two
	// checkpoints of a silent lease. Below this bound, both are 2/5 of the TTL, and the latter is
	// at least a second. Zero means 5 minutes.
	CheckpointInterval TTL
	// Untended is how long an untended lease may go unrenewed before it is checkpointed. A lease is
	// untended after its grant, after Lessor.Abandon, and after a promotion, until its next
	// renewal. Zero means the same time as for other leases.
	Untended TTL
	// MaxKeys caps the keys attached to one lease. Zero means no cap.
	MaxKeys int
	// SpreadRate is how many leases may newly end within one second after a promotion. If more
	// would, the others end later. Zero means 100,000.
	SpreadRate int
	// AtOnce bounds the leases that one call of Lessor.Advance (those whose time has come),
	// Lessor.Promote, Lessor.Due or Lessor.Silent processes. Zero means 32,768, which take some
	// milliseconds.
	AtOnce int
}

// The defaults of Config.
const (
	defaultMinTTL             TTL = 1
	defaultMaxTTL             TTL = 9_000_000_000 * 1000
	defaultCheckpointInterval TTL = 5 * 60 * 1000
	defaultSpreadRate             = 100_000
	defaultAtOnce                 = 32_768
)

// minAgain bounds how often a lease with a short TTL is checkpointed. A restart of all members
// takes about as long, and no promise depends on this time.
const minAgain TTL = 1000

func (c Config) withDefaults() Config {
	if c.MinTTL <= 0 {
		c.MinTTL = defaultMinTTL
	}
	if c.MaxTTL <= 0 {
		c.MaxTTL = defaultMaxTTL
	}
	if c.CheckpointInterval <= 0 {
		c.CheckpointInterval = defaultCheckpointInterval
	}
	if c.SpreadRate <= 0 {
		c.SpreadRate = defaultSpreadRate
	}
	if c.AtOnce <= 0 {
		c.AtOnce = defaultAtOnce
	}
	return c
}

// after returns the first instant at which at least ttl has passed since any moment within t. It
// saturates instead of wrapping around (T24).
func (t Instant) after(ttl TTL) Instant {
	if ttl >= TTL(math.MaxInt64-int64(t)) {
		return math.MaxInt64
	}
	return t + Instant(ttl) + 1
}
