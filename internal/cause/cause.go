// Package cause contains the codes with which a member reports problems, and "leasehold recover"
// its findings. Programs compare codes; the accompanying texts are for people, and may change.
// docs/operations.md explains each code.
package cause

import "strings"

// An error has its code in google.rpc.ErrorInfo: under this key in the metadata of errors of this
// domain.
const (
	Domain = "leasehold.dev"
	Key    = "cause"
)

// Code identifies a cause. The codes are an interface: their meanings never change.
type Code string

// Report puts the code before a text, as members do in one line.
func (c Code) Report(text string) string { return string(c) + ": " + text }

// OfReport splits a report. A report without a code is returned as text.
func OfReport(report string) (c Code, text string) {
	code, text, found := strings.Cut(report, ": ")
	if !found || code == "" || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "" {
		return "", report
	}
	return Code(code), text
}

// Causes for which a member stopped, or did not start.
const (
	// TooOld: a newer release wrote the data or the log.
	TooOld Code = "TOO_OLD"
	// VersionNotSpoken: the release does not support the cluster version.
	VersionNotSpoken Code = "VERSION_NOT_SPOKEN"
	// LostData: the cluster remembers the member with other data.
	LostData Code = "LOST_DATA"
	// CopiedData: two processes are the same member. The one that continues reports it, too.
	CopiedData Code = "COPIED_DATA"
	// Removed: the cluster has removed the member.
	Removed Code = "REMOVED"
	// StatesDiffer: the member's state differs from that of the majority.
	StatesDiffer Code = "STATES_DIFFER"
	// RolledBack: the data are older than what the member has promised.
	RolledBack Code = "ROLLED_BACK"
	// Contradicted: another member contradicts the member's disk in some other way.
	Contradicted Code = "CONTRADICTED"
	// NotApplicable: members of this release cannot apply an entry of the log.
	NotApplicable Code = "ENTRY_NOT_APPLICABLE"
	// Damaged: the data differ from what was written.
	Damaged Code = "DAMAGED"
	// HalfRestored: a restore into the directory was interrupted.
	HalfRestored Code = "HALF_RESTORED"
	// InUse: another process uses the directory.
	InUse Code = "IN_USE"
	// ForeignData: the directory belongs to another program.
	ForeignData Code = "FOREIGN_DATA"
	// DiskFull: the disk is full. A running member reports it.
	DiskFull Code = "DISK_FULL"
	// BackupsFail: backups have been failing for a while. The leader reports it.
	BackupsFail Code = "BACKUPS_FAIL"
	// DiskFailed: the disk failed to write or read.
	DiskFailed Code = "DISK_FAILED"
	// Failed: everything else.
	Failed Code = "FAILED"
)

// Causes for which a member, or a cluster, does not answer.
const (
	// NoLeader: the member knows no leader. Errors have this code in ErrorInfo, too.
	NoLeader Code = "NO_LEADER"
	// NoState: the member does not have the state of its cluster; also in ErrorInfo.
	NoState Code = "NO_STATE"
	// Refused: the host answers, but no process listens on the port.
	Refused Code = "REFUSED"
	// Unreachable: the address accepts no connection for another reason.
	Unreachable Code = "UNREACHABLE"
	// Hangs: the process accepts connections but answers no calls.
	Hangs Code = "HANGS"
	// NotAMember: the process on the port is not a member.
	NotAMember Code = "NOT_A_MEMBER"
	// NotStarted: the member was added and has never run.
	NotStarted Code = "NOT_STARTED"
	// CallFailed: a call failed on a connection, for the reason in the text.
	CallFailed Code = "CALL_FAILED"
	// LoginRequired: the member rejected a call for a missing or wrong login.
	LoginRequired Code = "LOGIN_REQUIRED"
	// NoAnswer: no member of the cluster answers.
	NoAnswer Code = "NO_ANSWER"
	// NoMajority: too few members of the cluster answer.
	NoMajority Code = "NO_MAJORITY"
	// NotServing: enough members answer, but the cluster does not serve.
	NotServing Code = "NOT_SERVING"
)

// Other findings of recover.
const (
	// CertificateExpired: certificates are not valid now.
	CertificateExpired Code = "CERTIFICATE_EXPIRED"
	// TwoClusters: the endpoints belong to different clusters.
	TwoClusters Code = "TWO_CLUSTERS"
	// OtherCluster: the directory belongs to another cluster than the one that answers.
	OtherCluster Code = "OTHER_CLUSTER"
	// QuotaUsedUp: the state is as large as the quota.
	QuotaUsedUp Code = "QUOTA_USED_UP"
	// NotRunning: the member's data are sound, but no process runs it.
	NotRunning Code = "NOT_RUNNING"
	// Split: states differ, and no majority agrees.
	Split Code = "SPLIT"
	// DiskLost: the member has no data.
	DiskLost Code = "DISK_LOST"
	// NoData: the host has no data of a cluster that does not serve.
	NoData Code = "NO_DATA"
	// Reported: the member reports a problem without a code.
	Reported Code = "REPORTED"
)
