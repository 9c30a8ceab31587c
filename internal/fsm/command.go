package fsm

import (
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// A Command is one change to the replicated state. The set of commands is closed: Put, DeleteRange,
// Txn, Compact, Grant, Revoke, ChangeTTL, HandOver, Resume, Expire, Checkpoint, DropOrphans,
// SetAlarm, SetMember, AddMember, RemoveMember, PromoteMember, SetVersion, OpenSession, Once, By,
// HashState, StateHash, and the commands for users and roles: AuthEnable, AuthDisable, UserAdd,
// UserDelete, UserPassword, UserGrantRole, UserRevokeRole, RoleAdd, RoleDelete, RoleGrant,
// RoleRevoke and SetLimits. A Command is immutable once it is proposed.
type Command interface {
	// kind is the command's tag in the log.
	kind() kind
}

// Put sets a key. With IgnoreValue the key keeps its value, and with IgnoreLease it keeps its
// lease. In both cases the key must exist, or the result is ErrKeyNotFound.
type Put struct {
	Key   string
	Value []byte
	Lease lease.ID
	// LeaseName, if not empty, is the name of the lease. It can be used instead of Lease or
	// together with it.
	LeaseName string
	// LeaseToken, if not 0, must match the token of the lease.
	LeaseToken lease.Token
	// If PrevKV is set, the result contains the pair that was replaced.
	PrevKV      bool
	IgnoreValue bool
	IgnoreLease bool
	// MaxKeys, if not 0, caps the number of keys on the lease, including this one. If the cap is
	// exceeded, the result is a *lease.KeyLimitError. The cap is part of the command because
	// members can be configured differently.
	MaxKeys int
}

// DeleteRange deletes the keys in [Key, End). End follows etcd's convention: "" means the single
// key, and "\x00" means all keys at or after Key.
type DeleteRange struct {
	Key, End string
	// If PrevKV is set, the result contains the deleted pairs.
	PrevKV bool
}

// Range reads the keys in [Key, End) within a transaction.
type Range struct {
	Key, End string
	Options  mvcc.RangeOptions
}

// Op is one operation of a transaction. Exactly one field is set.
//
// Draw takes the next fencing token, from the same sequence as the tokens of leases. It changes no
// key, lease or revision, and never causes the transaction to fail.
//
// A Put can refer to the lease of an earlier Grant in the transaction. It uses the lease that the
// Grant returns. If the Grant is a repeated request, that lease may have a different ID.
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

// Target is what a Compare compares.
type Target uint8

// These are the targets of the etcd API, with the same numbers.
const (
	TargetVersion Target = iota
	TargetCreate
	TargetMod
	TargetValue
	TargetLease
)

// These targets are not part of the etcd API. They compare leases, not keys.
const (
	// TargetLeaseAlive tests whether lease Number is alive. Equal holds if it is. NotEqual holds if
	// the lease is not alive or is in its lock delay.
	TargetLeaseAlive Target = 16 + iota
	// TargetNameToken compares Number with the token of the live lease named Key, or with 0 if
	// there is no such lease. Both are compared as unsigned numbers.
	TargetNameToken
	// TargetLeaseName compares the lease of the keys, as TargetLease does, with the lease named
	// Value. If there is no such lease, the keys compare as not equal.
	TargetLeaseName
)

func (t Target) known() bool {
	return t <= TargetLease || t >= TargetLeaseAlive && t <= TargetLeaseName
}

// bytes reports whether the operand of a target is Value rather than Number.
func (t Target) bytes() bool { return t == TargetValue || t == TargetLeaseName }

// Relation is how a Compare compares the target with its operand.
type Relation uint8

// These are the relations of the etcd API, with the same numbers.
const (
	Equal Relation = iota
	Greater
	Less
	NotEqual
)

// Compare is a condition that must hold for every key in [Key, End). For a key that does not exist,
// all numbers are zero, and any comparison of its value fails.
type Compare struct {
	Key, End string
	Target   Target
	Relation Relation
	// Number is the operand of every target except TargetValue and TargetLeaseName.
	Number int64
	Value  []byte
}

// Txn evaluates Compare, including the conditions of nested transactions, against the state before
// the transaction, and then runs Then or Else. All its changes share one revision.
type Txn struct {
	Compare []Compare
	Then    []Op
	Else    []Op
}

// Compact makes revisions below Revision unreadable.
type Compact struct{ Revision int64 }

// Grant creates a lease. If the client did not choose Terms.ID, the proposer must, because apply
// uses no random numbers.
type Grant struct {
	Terms lease.Terms
	// If Renew is set, a repeated Grant renews the lease that the first request created (T3), and
	// does so through the log. Returning the remaining time instead would be incorrect. It depends
	// on the leader's timer, and another leader may have counted from an earlier checkpoint.
	Renew bool
	// Holds lists the ranges whose keys the holder may cache. The ranges never change. They are
	// released when the lease ends or is transferred to another process or owner (Resume,
	// HandOver). The last holder's cache may still have the keys at that time: see Orphan and
	// CheckHolds.
	Holds []keyrange.Range
}

// Revoke ends a lease and deletes its keys in one revision.
type Revoke struct {
	ID lease.ID
	// Name, if not empty, is the name of the lease. It can be used instead of ID or together with
	// it. The same applies to the commands below.
	Name string
	// Token, if not 0, must match the token of the lease. Otherwise the lease is not found (T28).
	Token lease.Token
	// By is the name of the caller that revokes the lease, for the event. It can be empty.
	By string
}

// ChangeTTL changes the TTL of a lease: see lease.Lessor.ChangeTTL.
type ChangeTTL struct {
	ID    lease.ID
	Name  string
	Token lease.Token
	TTL   lease.TTL
	// MaxCacheTTL, if positive, is the largest TTL allowed if the lease holds ranges. Whether it
	// does is known for certain only when the command is applied.
	MaxCacheTTL lease.TTL
}

// HandOver transfers a lease to another owner: see lease.Lessor.HandOver.
type HandOver struct {
	ID     lease.ID
	Name   string
	Token  lease.Token
	Owner  string
	Secret lease.Secret
	// Principal is the new principal of the lease. If it is empty, the principal does not change.
	Principal string
}

// Resume transfers a lease to another process: see lease.Lessor.Resume.
type Resume struct {
	ID     lease.ID
	Name   string
	Secret lease.Secret
}

// Touch renews a lease within a transaction: see lease.Lessor.Touch.
type Touch struct {
	ID   lease.ID
	Name string
	// Token is the token of the lease, or 0 to match any token.
	Token lease.Token
}

// Expire ends leases that the leader of Term found to be past their expiry. It takes effect only if
// its entry is in the same term (T1). It skips leases that have changed since the decision.
type Expire struct {
	Term   uint64
	Leases []lease.Due
}

// Checkpoint replicates the remaining time of silent leases, or clears it for leases that were
// renewed. Like Expire, it takes effect only in the term in which it was proposed.
type Checkpoint struct {
	Term   uint64
	Leases []lease.Checkpoint
}

// AlarmKind is the reason for an alarm. Kinds that clients can raise have the same numbers as in
// the etcd API.
type AlarmKind uint8

// The kinds of alarm. Members detect Damaged and Split by comparing hashes of the state. Clients
// see both as Corrupt.
const (
	NoSpace AlarmKind = 1
	Corrupt AlarmKind = 2
	// Damaged means that the member's state differs from the state of the majority. Other members
	// are not affected.
	Damaged AlarmKind = 3
	// Split is not attributed to a member. It means that states differ, and no majority of the
	// voters has the same state.
	Split AlarmKind = 4
)

func (k AlarmKind) known() bool { return NoSpace <= k && k <= Split }

// found reports whether alarms of this kind are raised only by a comparison of hashes.
func (k AlarmKind) found() bool { return k == Damaged || k == Split }

// Shown returns the kind that clients see.
func (k AlarmKind) Shown() AlarmKind {
	if k.found() {
		return Corrupt
	}
	return k
}

// Alarm is a raised alarm.
type Alarm struct {
	Member uint64
	Kind   AlarmKind
}

// SetAlarm raises an alarm, or clears it if Off is set.
type SetAlarm struct {
	Alarm Alarm
	Off   bool
}

// Member is what the cluster stores about each member.
type Member struct {
	ID         uint64
	Name       string
	PeerURLs   []string
	ClientURLs []string
	Learner    bool
	// Incarnation distinguishes the member's current data directory from earlier ones. It is 0
	// until the member reports it, and never changes after that. A member that lost its data must
	// join as a new member.
	Incarnation uint64
	// Versions are the cluster versions that the member supports, as reported at its last start.
	Versions version.Range
	// Quota is the maximum size of the state in bytes, as reported by the member at its last start.
	// It is 0 if the member has not reported a quota, and negative if there is none.
	Quota int64
	// TokenKey is the public key, in raw bytes, for tokens issued by the member since its start. It
	// is empty if the member has issued none since access control was enabled.
	TokenKey string
}

// SetMember updates the name and addresses of an existing member. Empty fields are not updated, and
// Learner is ignored, so that concurrent updates do not undo each other.
type SetMember struct{ Member Member }

// AddMember adds a member as a voter or a learner. Like RemoveMember and PromoteMember, it also
// changes the Raft group (see Membership).
type AddMember struct{ Member Member }

// RemoveMember removes a member permanently: its ID is never used again.
type RemoveMember struct{ ID uint64 }

// PromoteMember makes a learner a voter.
type PromoteMember struct{ ID uint64 }

// kind is the tag of a command in the log. The numbers are stored on disk and must stay below
// groupHeader. Never reuse one.
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

// Internal reports whether only the leader's own timers can propose c. Clients and other members
// cannot.
func Internal(c Command) bool {
	switch c.kind() {
	case kindExpire, kindCheckpoint, kindDropOrphans, kindHashState:
		return true
	default:
		return false
	}
}

// Membership reports whether c changes the members of the Raft group. Such a command is proposed on
// its own, as a Raft configuration change.
func Membership(c Command) bool {
	switch Inner(c).kind() {
	case kindAddMember, kindRemoveMember, kindPromoteMember:
		return true
	default:
		return false
	}
}
