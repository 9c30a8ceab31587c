// Package cause defines the codes that members use to report problems and that "leasehold recover"
// uses for its findings. Programs should compare the codes. The accompanying texts are written for
// humans and may change. docs/operations.md explains each code.
package cause

import "strings"

// Where the code is found in an error's google.rpc.ErrorInfo. Errors in this domain carry the code
// in their metadata under this key.
const (
	Domain = "leasehold.dev"
	Key    = "cause"
)

// Code identifies a cause. The codes are a public interface, so their meanings never change.
type Code string

// Report returns a line with the code and a text, in the form used by members.
func (c Code) Report(text string) string { return string(c) + ": " + text }

// OfReport splits a report into its code and its text. If there is no code, the entire report is
// returned as the text.
func OfReport(report string) (c Code, text string) {
	code, text, found := strings.Cut(report, ": ")
	if !found || code == "" || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "" {
		return "", report
	}
	return Code(code), text
}

// Reasons why a member stopped or did not start.
const (
	// TooOld means that a newer release wrote the data or the log.
	TooOld Code = "TOO_OLD"
	// VersionNotSpoken means that this release does not support the cluster version.
	VersionNotSpoken Code = "VERSION_NOT_SPOKEN"
	// LostData means that the cluster has recorded this member with different data.
	LostData Code = "LOST_DATA"
	// CopiedData means that two processes are running as the same member. The process that keeps
	// running also reports it.
	CopiedData Code = "COPIED_DATA"
	// Removed means that the cluster has removed this member.
	Removed Code = "REMOVED"
	// StatesDiffer means that the member's state differs from the majority's.
	StatesDiffer Code = "STATES_DIFFER"
	// RolledBack means that the data is older than promises that the member has made to the
	// cluster.
	RolledBack Code = "ROLLED_BACK"
	// Contradicted means that another member contradicts this member's disk in some other way.
	Contradicted Code = "CONTRADICTED"
	// NotApplicable means that members running this release cannot apply an entry in the log.
	NotApplicable Code = "ENTRY_NOT_APPLICABLE"
	// Damaged means that the data on disk is not the data that was written.
	Damaged Code = "DAMAGED"
	// HalfRestored means that a restore into the directory was interrupted.
	HalfRestored Code = "HALF_RESTORED"
	// InUse means that another process is using the directory.
	InUse Code = "IN_USE"
	// ForeignData means that the directory belongs to another program.
	ForeignData Code = "FOREIGN_DATA"
	// DiskFull means that the disk is full. It is also reported by running members.
	DiskFull Code = "DISK_FULL"
	// BackupsFail means that backups have been failing for a while. The leader reports it.
	BackupsFail Code = "BACKUPS_FAIL"
	// DiskFailed means that the disk returned an error on a read or write.
	DiskFailed Code = "DISK_FAILED"
	// Failed covers all other reasons.
	Failed Code = "FAILED"
)

// Reasons why a member or a cluster does not respond.
const (
	// NoLeader means that the member does not know a leader. This code also appears in ErrorInfo.
	NoLeader Code = "NO_LEADER"
	// NoState means that the member does not have its cluster's state. This code also appears in
	// ErrorInfo.
	NoState Code = "NO_STATE"
	// Refused means that the host responds but no process is listening on the port.
	Refused Code = "REFUSED"
	// Unreachable means that the address does not accept connections for some other reason.
	Unreachable Code = "UNREACHABLE"
	// Hangs means that the process accepts connections but does not respond to calls.
	Hangs Code = "HANGS"
	// NotAMember means that the process on the port is not a member.
	NotAMember Code = "NOT_A_MEMBER"
	// NotStarted means that the member was added but has never been started.
	NotStarted Code = "NOT_STARTED"
	// CallFailed means that a call failed on an established connection. The text contains the
	// reason.
	CallFailed Code = "CALL_FAILED"
	// LoginRequired means that the member rejected a call because the login is missing or wrong.
	LoginRequired Code = "LOGIN_REQUIRED"
	// NoAnswer means that no member of the cluster responds.
	NoAnswer Code = "NO_ANSWER"
	// NoMajority means that too few members of the cluster respond.
	NoMajority Code = "NO_MAJORITY"
	// NotServing means that enough members respond but the cluster is not serving.
	NotServing Code = "NOT_SERVING"
)

// Other findings of "leasehold recover".
const (
	// CertificateExpired means that certificates are not currently valid.
	CertificateExpired Code = "CERTIFICATE_EXPIRED"
	// TwoClusters means that the endpoints belong to different clusters.
	TwoClusters Code = "TWO_CLUSTERS"
	// OtherCluster means that the directory does not belong to the cluster that responds.
	OtherCluster Code = "OTHER_CLUSTER"
	// QuotaUsedUp means that the state has reached the quota.
	QuotaUsedUp Code = "QUOTA_USED_UP"
	// NotRunning means that the member's data is intact but no process is running the member.
	NotRunning Code = "NOT_RUNNING"
	// Split means that the members' states differ and that no majority agrees.
	Split Code = "SPLIT"
	// DiskLost means that the member has no data.
	DiskLost Code = "DISK_LOST"
	// NoData means that the cluster is not serving and this host has none of its data.
	NoData Code = "NO_DATA"
	// Reported means that the member reports a problem without a code.
	Reported Code = "REPORTED"
)
