package fsm

import (
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// A Command is one change of the replicated state. The set is closed: Put, DeleteRange, Txn,
// Compact, Grant, Revoke, ChangeTTL, HandOver, Resume, Expire, Checkpoint, DropOrphans, SetAlarm,
// SetMember, AddMember, RemoveMember, PromoteMember, SetVersion, OpenSession, Once, By, HashState,
// StateHash, and those about users and roles: AuthEnable, AuthDisable, UserAdd, UserDelete,
// UserPassword, UserGrantRole, UserRevokeRole, RoleAdd, RoleDelete, RoleGrant, RoleRevoke and
// SetLimits. A Command is immutable once it is proposed.
type Command interface {
	// kind is the command's tag in the log.
	kind() kind
}

// Put sets a key. With IgnoreValue or IgnoreLease the key keeps its value or its lease; it must
// exist, or the result is ErrKeyNotFound.
type Put struct {
	Key   string
	Value []byte
	Lease lease.ID
	// LeaseName, if not empty, names the lease in addition to Lease, or instead of it.
	LeaseName string
	// LeaseToken, if not 0, must be the token of the lease.
	LeaseToken lease.Token
	// If PrevKV is set, the result contains the replaced pair.
	PrevKV      bool
	IgnoreValue bool
	IgnoreLease bool
	// MaxKeys, if not 0, is the number of keys that Lease may have, including this one. Above it
	// the result is a *lease.KeyLimitError. The command carries the limit because members may be
	// configured differently.
	MaxKeys int
}

// DeleteRange deletes the keys of [Key, End). End follows etcd's convention: "" means the single
// key, and "\x00" means all keys from Key on.
type DeleteRange struct {
	Key, End string
	// If PrevKV is set, the result contains the deleted pairs.
	PrevKV bool
}

// Range reads the keys of [Key, End) within a transaction.
type Range struct {
	Key, End string
	Options  mvcc.RangeOptions
}

// Op is one operation of a transaction; exactly one field is set. Draw takes the next fencing
// token, from the same sequence as the tokens of leases. It changes no key, lease or revision, and
// never fails by itself. A Put may name the lease of a Grant before it in the transaction; it uses
// the lease that the Grant returns, even if a repeated request finds an earlier lease with another
// ID.
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

// The targets, numbered as in the etcd API.
const (
	TargetVersion Target = iota
	TargetCreate
	TargetMod
	TargetValue
	TargetLease
)

// These targets are not in the etcd API. They compare leases, not keys.
const (
	// TargetLeaseAlive tests whether the lease Number is alive. Equal holds if it is, and NotEqual
	// if it is not or is in its lock delay.
	TargetLeaseAlive Target = 16 + iota
	// TargetNameToken compares the token of the live lease that has the name Key, or 0 if there is
	// none, with Number. Both are unsigned.
	TargetNameToken
	// TargetLeaseName compares the lease of the keys, as TargetLease does, with the lease that has
	// the name Value. If there is none, no key is equal.
	TargetLeaseName
)

func (t Target) known() bool {
	return t <= TargetLease || t >= TargetLeaseAlive && t <= TargetLeaseName
}

// bytes reports whether the operand of a target is Value instead of Number.
func (t Target) bytes() bool { return t == TargetValue || t == TargetLeaseName }

// Relation is how a Compare compares the target with its operand.
type Relation uint8

// The relations, numbered as in the etcd API.
const (
	Equal Relation = iota
	Greater
	Less
	NotEqual
)

// Compare is a condition on every key of [Key, End). For a key that does not exist, all numbers are
// zero, and every comparison of values fails.
type Compare struct {
	Key, End string
	Target   Target
	Relation Relation
	// Number is the operand for every target but TargetValue and TargetLeaseName.
	Number int64
	Value  []byte
}

// Txn evaluates Compare (and those of nested transactions) against the state before it, and then
// runs Then or Else. All its changes share one revision.
type Txn struct {
	Compare []Compare
	Then    []Op
	Else    []Op
}

// Compact makes revisions below Revision unreadable.
type Compact struct{ Revision int64 }

// Grant creates a lease. If the client did not choose Terms.ID, the proposer chooses it: apply
// draws no random numbers.
type Grant struct {
	Terms lease.Terms
	// If Renew is set, a repeated Grant renews the lease that its request created, through the log
	// (T3). Returning the remaining time instead would not do: it depends on the leader's timer,
	// and another leader may have counted from an earlier checkpoint.
	Renew bool
	// Holds are the ranges whose keys the holder may cache. They never change. They end with the
	// lease, and when it passes to another process or owner (Resume, HandOver). The last holder's
	// cache may still have the keys then: see Orphan and CheckHolds.
	Holds []keyrange.Range
}

// Revoke ends a lease and deletes its keys in one revision.
type Revoke struct {
	ID lease.ID
	// Name, if not empty, names the lease in addition to ID, or instead of it. The same holds for
	// the commands below.
	Name string
	// Token, if not 0, must be the lease's token; otherwise the lease is not found (T28).
	Token lease.Token
	// By is the name of the caller that revokes, for the event. It may be empty.
	By string
}

// ChangeTTL changes the TTL of a lease: see lease.Lessor.ChangeTTL.
type ChangeTTL struct {
	ID    lease.ID
	Name  string
	Token lease.Token
	TTL   lease.TTL
	// MaxCacheTTL, if positive, is the largest TTL allowed if the lease holds ranges. Only apply
	// can tell for certain whether it does.
	MaxCacheTTL lease.TTL
}

// HandOver transfers a lease to another owner: see lease.Lessor.HandOver.
type HandOver struct {
	ID     lease.ID
	Name   string
	Token  lease.Token
	Owner  string
	Secret lease.Secret
	// Principal is the new principal of the lease. Empty keeps the old one.
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
	// Token is the lease's token, or 0 for any.
	Token lease.Token
}

// Expire ends leases that the leader of Term found past their expiry. It is dropped unless its
// entry has the same term (T1). It skips leases that changed after the decision.
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

// AlarmKind is the reason for an alarm. Kinds that clients can raise are numbered as in the etcd
// API.
type AlarmKind uint8

// The kinds of alarm. Members find Damaged and Split by comparing hashes of the state. Clients see
// both as Corrupt.
const (
	NoSpace AlarmKind = 1
	Corrupt AlarmKind = 2
	// Damaged means that the member's state differs from that of the majority. Other members are
	// not affected.
	Damaged AlarmKind = 3
	// Split belongs to no member: states differ, and no majority of the voters agrees on one.
	Split AlarmKind = 4
)

func (k AlarmKind) known() bool { return NoSpace <= k && k <= Split }

// found reports whether only a comparison of hashes raises alarms of this kind.
func (k AlarmKind) found() bool { return k == Damaged || k == Split }

// Shown returns the kind that clients see.
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

// SetAlarm raises an alarm, or lowers it if Off is set.
type SetAlarm struct {
	Alarm Alarm
	Off   bool
}

// Member is what the cluster stores about one of its members.
type Member struct {
	ID         uint64
	Name       string
	PeerURLs   []string
	ClientURLs []string
	Learner    bool
	// Incarnation distinguishes the member's current data directory from earlier ones. It is 0 until
	// the member reports it, and never changes after that: a member that lost its data is another
	// member.
	Incarnation uint64
	// Versions are the cluster versions that the member supports, as reported at its last start.
	Versions version.Range
	// Quota bounds the size of the state in bytes, as reported by the member at its last start. It
	// is 0 if the member has not reported one, and negative if there is no bound.
	Quota int64
	// TokenKey is the public key of the tokens that the member has issued since its start, as
	// bytes. It is empty if it has issued none since access control was enabled.
	TokenKey string
}

// SetMember updates the name and addresses of a known member. Empty fields keep their values, and
// Learner is ignored, so that two concurrent updates do not undo each other.
type SetMember struct{ Member Member }

// AddMember adds a member, as a voter or a learner. It, RemoveMember and PromoteMember also change
// the Raft group (see Membership).
type AddMember struct{ Member Member }

// RemoveMember removes a member for good: its ID is never used again.
type RemoveMember struct{ ID uint64 }

// PromoteMember makes a learner a voter.
type PromoteMember struct{ ID uint64 }

// kind tags a command in the log. The numbers are on disk, and are below groupHeader: never reuse
// one.
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

// Internal reports whether only the leader's own timers may propose c, never a client or another
// member.
func Internal(c Command) bool {
	switch c.kind() {
	case kindExpire, kindCheckpoint, kindDropOrphans, kindHashState:
		return true
	default:
		return false
	}
}

// Membership reports whether c changes the members of the Raft group. Such a command is proposed
// alone, as a Raft configuration change.
func Membership(c Command) bool {
	switch Inner(c).kind() {
	case kindAddMember, kindRemoveMember, kindPromoteMember:
		return true
	default:
		return false
	}
}
