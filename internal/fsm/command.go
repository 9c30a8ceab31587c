package fsm

import (
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// A Command is one change of the replicated state. The set is closed: Put,
// DeleteRange, Txn, Compact, Grant, Revoke, ChangeTTL, HandOver, Resume, Expire,
// Checkpoint, DropOrphans, SetAlarm, SetMember, AddMember, RemoveMember, PromoteMember,
// SetVersion, OpenSession, Once, By, and those about users and roles: AuthEnable, AuthDisable,
// UserAdd, UserDelete, UserPassword, UserGrantRole, UserRevokeRole, RoleAdd, RoleDelete, RoleGrant,
// RoleRevoke and SetLimits. A Command is immutable from the moment it is proposed.
type Command interface {
	// kind is the command's tag in the log.
	kind() kind
}

// Put sets a key. With IgnoreValue (IgnoreLease) the key keeps its value
// (lease) and must exist, else the result is ErrKeyNotFound.
type Put struct {
	Key   string
	Value []byte
	Lease lease.ID
	// LeaseName, if not empty, names the lease as well, or instead.
	LeaseName string
	// LeaseToken, if not 0, must be the lease's.
	LeaseToken lease.Token
	// PrevKV asks for the replaced pair in the result.
	PrevKV      bool
	IgnoreValue bool
	IgnoreLease bool
	// MaxKeys, if not 0, is how many keys Lease may have with this one: else the result is
	// a *lease.KeyLimitError. It is in the command, since members may be set up differently.
	MaxKeys int
}

// DeleteRange deletes the keys of [Key, End), by etcd's convention for End:
// "" is the one key, "\x00" is everything from Key on.
type DeleteRange struct {
	Key, End string
	// PrevKV asks for the deleted pairs in the result.
	PrevKV bool
}

// Range reads the keys of [Key, End) within a transaction.
type Range struct {
	Key, End string
	Options  mvcc.RangeOptions
}

// Op is one operation of a transaction; exactly one field is set. Draw gives out the
// next fencing token, of the sequence of the tokens of leases, and changes nothing else:
// no key, no lease, and no revision. It never fails by itself. A Put on a
// lease that a Grant before it in the transaction asked for is on the lease
// that the Grant returned, also if that is an earlier one of another ID, because
// the request is repeated.
type Op struct {
	Put    *Put
	Delete *DeleteRange
	Range  *Range
	Txn    *Txn
	Grant  *Grant
	Revoke *Revoke
	Touch  *Touch
	Draw   bool
}

// Target is what a Compare looks at.
type Target uint8

// The targets, numbered as in the etcd API.
const (
	TargetVersion Target = iota
	TargetCreate
	TargetMod
	TargetValue
	TargetLease
)

// These targets are not in the etcd API. They look at leases, not at keys.
const (
	// TargetLeaseAlive is whether the lease Number is alive: Equal holds if it is,
	// NotEqual if it is not, or its lock delay runs.
	TargetLeaseAlive Target = 16 + iota
	// TargetNameToken is the token of the lease that holds the name Key, compared
	// with Number, both unsigned: 0 if no lease that is alive does.
	TargetNameToken
	// TargetLeaseName is the lease of the keys, as for TargetLease, compared with the one that
	// has the name Value. If none has, no key is equal.
	TargetLeaseName
)

func (t Target) known() bool {
	return t <= TargetLease || t >= TargetLeaseAlive && t <= TargetLeaseName
}

// bytes reports whether the operand of a target is Value.
func (t Target) bytes() bool { return t == TargetValue || t == TargetLeaseName }

// Relation is how a Compare relates what it finds to its operand.
type Relation uint8

// The relations, numbered as in the etcd API.
const (
	Equal Relation = iota
	Greater
	Less
	NotEqual
)

// Compare is a condition on every key of [Key, End). A key that does not
// exist compares as one whose numbers are all zero, and never by value.
type Compare struct {
	Key, End string
	Target   Target
	Relation Relation
	// Number is the operand for every target but TargetValue and TargetLeaseName.
	Number int64
	Value  []byte
}

// Txn evaluates Compare (and those of nested transactions) against the state
// before it, then runs Then or Else; all its changes are one revision.
type Txn struct {
	Compare []Compare
	Then    []Op
	Else    []Op
}

// Compact makes revisions below Revision unreadable.
type Compact struct{ Revision int64 }

// Grant creates a lease. Terms.ID is chosen by the proposer if the client
// did not: apply draws no random numbers.
type Grant struct {
	Terms lease.Terms
	// Renew says that a Grant which finds the lease that its request made before renews it,
	// through the log (T3). What remains of the lease would be no answer: that is what the
	// leader's timer says, and another leader may have counted from an earlier checkpoint.
	Renew bool
	// Holds is what the lease holds: its holder may cache the keys that lie within.
	// It never changes, and is gone with the lease, or when that has another holder
	// (HandOver, Resume); but for what the last holder's cache may have: see Orphan and
	// CheckHolds.
	Holds []keyrange.Range
}

// Revoke ends a lease and deletes its keys in one revision.
type Revoke struct {
	ID lease.ID
	// Name, if not empty, names the lease as well, or instead. So it does below.
	Name string
	// Token, if not 0, must be the lease's, or it is not found (T28).
	Token lease.Token
	// By says who revokes, for the event. It may be empty.
	By string
}

// ChangeTTL gives a lease another TTL: see lease.Lessor.ChangeTTL.
type ChangeTTL struct {
	ID    lease.ID
	Name  string
	Token lease.Token
	TTL   lease.TTL
	// MaxCacheTTL, if above 0, is the longest TTL that the lease may get if it holds ranges.
	// Whether it does is known for certain only where the command is applied.
	MaxCacheTTL lease.TTL
}

// HandOver gives a lease to another owner: see lease.Lessor.HandOver.
type HandOver struct {
	ID     lease.ID
	Name   string
	Token  lease.Token
	Owner  string
	Secret lease.Secret
	// Principal is the user that it belongs to then. Empty means the same as before.
	Principal string
}

// Resume gives a lease to another process: see lease.Lessor.Resume.
type Resume struct {
	ID     lease.ID
	Name   string
	Secret lease.Secret
}

// Touch renews a lease within a transaction: see lease.Lessor.Touch.
type Touch struct {
	ID   lease.ID
	Name string
	// Token 0 means whichever the lease has.
	Token lease.Token
}

// Expire ends leases that the leader of Term found past their expiry. It is
// dropped unless Term is the term of the entry that carries it (T1), and a
// lease that changed since the decision is left alone.
type Expire struct {
	Term   uint64
	Leases []lease.Due
}

// Checkpoint replicates the remaining time of silent leases, or clears it
// for leases that were renewed. Like Expire it is its own leader's only.
type Checkpoint struct {
	Term   uint64
	Leases []lease.Checkpoint
}

// AlarmKind says what an alarm is about. Those that a client can raise are numbered as in the etcd
// API.
type AlarmKind uint8

// The kinds of alarm. Damaged and Split are found by comparing hashes of the state, and clients see
// them as Corrupt.
const (
	NoSpace AlarmKind = 1
	Corrupt AlarmKind = 2
	// Damaged means that the member's state differs from that of the majority. It holds up nobody
	// else.
	Damaged AlarmKind = 3
	// Split is nobody's alarm: states differ, and no majority of the voters says which are right.
	Split AlarmKind = 4
)

func (k AlarmKind) known() bool { return NoSpace <= k && k <= Split }

// found reports whether such an alarm is raised by the members' comparison only.
func (k AlarmKind) found() bool { return k == Damaged || k == Split }

// Shown is the kind that clients see.
func (k AlarmKind) Shown() AlarmKind {
	if k.found() {
		return Corrupt
	}
	return k
}

// Alarm is one raised alarm.
type Alarm struct {
	Member uint64
	Kind   AlarmKind
}

// SetAlarm raises an alarm, or lowers it when Off.
type SetAlarm struct {
	Alarm Alarm
	Off   bool
}

// Member is what the cluster knows of one of its members.
type Member struct {
	ID         uint64
	Name       string
	PeerURLs   []string
	ClientURLs []string
	Learner    bool
	// Incarnation tells the member's data from others that it had earlier; 0 until it has
	// told it. It never changes then: a member whose data are lost is another member.
	Incarnation uint64
	// Versions are the cluster versions that the member speaks, as it has told at its last start.
	Versions version.Range
	// Quota is how large the state may grow, in bytes, as the member has told at its last start:
	// 0 if it has told nothing, below 0 if there is no bound.
	Quota int64
	// TokenKey is the public key of the tokens that the member has given since its start, as bytes.
	// It is empty if it has given none since access control was enabled.
	TokenKey string
}

// SetMember updates a known member's name and addresses. Fields that are empty
// keep what is known, and whether it votes is not changed, so that two updates
// that cross undo nothing of each other.
type SetMember struct{ Member Member }

// AddMember takes a new member in, as a voter or a learner. It, RemoveMember and
// PromoteMember are the commands that change the Raft group too (see Membership).
type AddMember struct{ Member Member }

// RemoveMember takes a member out, for ever: its ID is never used again.
type RemoveMember struct{ ID uint64 }

// PromoteMember makes a learner a voter.
type PromoteMember struct{ ID uint64 }

// kind tags a command in the log. The numbers are on disk, below
// groupHeader: never reuse one.
type kind uint8

const (
	kindPut kind = iota + 1
	kindDeleteRange
	kindTxn
	kindOnce
	kindOpenSession
	kindGrant
	kindRevoke
	kindChangeTTL
	kindHandOver
	kindResume
	kindExpire
	kindCheckpoint
	kindDropOrphans
	kindCompact
	kindSetAlarm
	kindSetMember
	kindAddMember
	kindRemoveMember
	kindPromoteMember
	kindSetVersion
	kindBy
	kindAuthEnable
	kindAuthDisable
	kindUserAdd
	kindUserDelete
	kindUserPassword
	kindUserGrantRole
	kindUserRevokeRole
	kindRoleAdd
	kindRoleDelete
	kindRoleGrant
	kindRoleRevoke
	kindByRoles
	kindSetLimits
	kindHashState
	kindStateHash

	kindLast = kindStateHash
)

func (*Put) kind() kind         { return kindPut }
func (*DeleteRange) kind() kind { return kindDeleteRange }
func (*Txn) kind() kind         { return kindTxn }
func (*Compact) kind() kind     { return kindCompact }
func (*Grant) kind() kind       { return kindGrant }
func (*Revoke) kind() kind      { return kindRevoke }
func (*ChangeTTL) kind() kind   { return kindChangeTTL }
func (*HandOver) kind() kind    { return kindHandOver }
func (*Resume) kind() kind      { return kindResume }
func (*Expire) kind() kind      { return kindExpire }
func (*Checkpoint) kind() kind  { return kindCheckpoint }
func (*SetAlarm) kind() kind    { return kindSetAlarm }
func (*SetMember) kind() kind   { return kindSetMember }

func (*AddMember) kind() kind     { return kindAddMember }
func (*RemoveMember) kind() kind  { return kindRemoveMember }
func (*PromoteMember) kind() kind { return kindPromoteMember }

// Internal reports whether c may be proposed by the leader's own timers
// only, never on behalf of a client or of another member.
func Internal(c Command) bool {
	switch c.kind() {
	case kindExpire, kindCheckpoint, kindDropOrphans, kindHashState:
		return true
	default:
		return false
	}
}

// Membership reports whether c changes who is in the Raft group. Such a command
// is proposed alone, as a change of Raft's configuration.
func Membership(c Command) bool {
	switch Inner(c).kind() {
	case kindAddMember, kindRemoveMember, kindPromoteMember:
		return true
	default:
		return false
	}
}
