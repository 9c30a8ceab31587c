package lease

import "math"

// ID identifies a lease. Valid IDs are positive.
type ID int64

// TTL is a lifetime in milliseconds.
type TTL int64

// Instant is a point on the engine's clock: milliseconds since some fixed origin, rounded down,
// never negative. It is not wall time.
type Instant int64

// Token is a fencing token. Each grant gets a larger token than every earlier grant, and no token
// is used twice. The high 16 bits are the generation (see [State]).
type Token uint64

// Terms are the parameters of a grant.
type Terms struct {
	// ID is the ID of the lease. The grant's proposer chooses it. It must be positive.
	ID ID
	// TTL is how long the lease lives after a grant or renewal.
	TTL TTL
	// Name, if not empty, is unique: at most one live lease can hold it.
	Name string
	// Owner is a label chosen by the holder. It grants no permissions.
	Owner string
	// Principal, if not empty, is the user that the lease belongs to. The engine uses it only to
	// recognize a repeated request, which must have the same Principal.
	Principal string
	// RequestID, if not empty, lets the engine distinguish a repeated request from a new one (T3).
	RequestID string
	// Labels are for the owner's own use.
	Labels map[string]string
	// LockDelay is how long the name and the keys remain taken after the lease has expired. The
	// delay keeps in-flight requests of the previous holder from interfering with the next holder.
	// Zero means no delay.
	LockDelay TTL
	// If KeepKeys is set, the keys are detached and kept when the lease expires. A revocation still
	// deletes them.
	KeepKeys bool
	// If Bound is set, the lease exists for a single key and rejects a second one. When that key is
	// detached, Lessor.Loose reports it, and the caller ends the lease with Lessor.Revoke.
	Bound bool
	// Secret, if not zero, must be presented to Lessor.Resume.
	Secret Secret
}

// Secret is the hash of the secret that lets another process resume a lease. The zero value means
// that the lease cannot be resumed. The engine only compares hashes.
type Secret [32]byte

// Info is a copy of a lease's replicated record.
type Info struct {
	Terms
	// Token is the fencing token of this grant.
	Token Token
	// Remaining is the remaining time at the last checkpoint, or 0 if the lease is not
	// checkpointed. It does not count down: see [Lessor.Remaining].
	Remaining TTL
	// Stamp increases with every replicated change to the lease, except when a checkpoint is set.
	Stamp uint64
	// Delayed is true during the lock delay of an expired lease. During the delay, only its name
	// and keys still exist, and Remaining is what is left of the delay.
	Delayed bool
}

// Ended describes a lease that has ended, and what the caller must do about its keys.
type Ended struct {
	// Info is the current state of the lease or, if it has ended, its last state.
	Info
	// Gone is true if the lease was removed. Otherwise its lock delay has begun, and the caller has
	// nothing to do yet.
	Gone bool
	// Keys lists the keys that were attached, sorted. They are already detached. The caller deletes
	// them unless Keep is set.
	Keys []string
	// Keep is true if the keys are kept (see Terms.KeepKeys). It is meaningless if Keys is empty.
	Keep bool
	// Account is the account that a removed lease was charged to: see [Lessor.Charge].
	Account string
}

// Due is the decision to expire a lease. Token and Stamp identify the lease's state when the
// decision was made. If the lease has changed since, one of them differs.
type Due struct {
	ID    ID
	Token Token
	Stamp uint64
	// Late is the delay between the expiry of the lease and the decision. It is only a metric:
	// Expire ignores it, and it need not be replicated.
	Late TTL
}

// Checkpoint replicates the remaining time of a silent lease. If Remaining is 0, it clears the
// checkpoint because the holder has renewed the lease.
type Checkpoint struct {
	ID        ID
	Token     Token
	Remaining TTL
	// Stamp is the stamp of the lease when it was found silent. If the lease has changed since, the
	// checkpoint is not set, because the TTL may have restarted. 0 matches any stamp. Stamp is
	// ignored when a checkpoint is cleared.
	Stamp uint64
}

// Renewal is the result of a successful Renew.
type Renewal struct {
	// TTL is the TTL of the lease, counted from the instant of the renewal.
	TTL TTL
	// Token is the token of the renewed lease.
	Token Token
	// Clear is true if the lease is checkpointed, or will be once a proposed checkpoint is applied.
	// Another primary would end the lease according to that checkpoint. So the renewal must not be
	// acknowledged before a Checkpoint that clears it has been applied.
	Clear bool
}

// Config configures a Lessor. The bounds on the TTL and MaxKeys are checked when a command is
// applied, so they must be the same on every member.
type Config struct {
	// MinTTL and MaxTTL bound the TTL of a grant. Zero means 1 ms for MinTTL and 9,000,000,000 s
	// for MaxTTL.
	MinTTL, MaxTTL TTL
	// CheckpointInterval caps how long a lease can be silent before it is checkpointed, and the
	// time between two checkpoints of a silent lease. Otherwise both are 2/5 of the TTL, but the
	// time between two checkpoints is at least a second. Zero means 5 minutes.
	CheckpointInterval TTL
	// Untended is how long an untended lease can go unrenewed before it is checkpointed. A lease is
	// untended after its grant, after Lessor.Abandon, and after a promotion, until its next
	// renewal. Zero means that untended leases are treated like all others.
	Untended TTL
	// MaxKeys caps the keys attached to one lease. Zero means no cap.
	MaxKeys int
	// SpreadRate is how many leases can end within any one second after a promotion. If more leases
	// would end in that second, the rest end later. Zero means 100,000.
	SpreadRate int
	// AtOnce caps the number of leases that one call of Lessor.Advance, Lessor.Promote, Lessor.Due
	// or Lessor.Silent processes. Zero means 32,768, which takes a few milliseconds.
	AtOnce int
}

// Default values of Config.
const (
	defaultMinTTL             TTL = 1
	defaultMaxTTL             TTL = 9_000_000_000 * 1000
	defaultCheckpointInterval TTL = 5 * 60 * 1000
	defaultSpreadRate             = 100_000
	defaultAtOnce                 = 32_768
)

// minRecheckpoint is the minimum time between two checkpoints of a lease with a short TTL.
// Restarting all members takes about as long anyway, and no guarantee depends on this value.
const minRecheckpoint TTL = 1000

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

// after returns the first instant by which at least ttl has passed, no matter when within the
// millisecond t it began. It saturates instead of overflowing (T24).
func (t Instant) after(ttl TTL) Instant {
	if ttl >= TTL(math.MaxInt64-int64(t)) {
		return math.MaxInt64
	}
	return t + Instant(ttl) + 1
}
