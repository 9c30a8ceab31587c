// Package cause has the codes by which a member says what is wrong with it, and recover what it has
// found. Programs compare codes; the texts beside them are for people, and change.
// docs/operations.md says what each means.
package cause

import "strings"

// A refusal has its code in google.rpc.ErrorInfo: those of this domain have it in their metadata,
// under this key.
const (
	Domain = "leasehold.dev"
	Key    = "cause"
)

// Code is one cause. The codes are an interface: none changes its meaning.
type Code string

// Report is a text with its code before it, as members put both into one line.
func (c Code) Report(text string) string { return string(c) + ": " + text }

// OfReport takes a report apart. What has no code is text alone.
func OfReport(report string) (c Code, text string) {
	code, text, found := strings.Cut(report, ": ")
	if !found || code == "" || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "" {
		return "", report
	}
	return Code(code), text
}

// Why a member has stopped, or did not start.
const (
	// TooOld is for data, or a log, that a newer release has written.
	TooOld Code = "TOO_OLD"
	// VersionNotSpoken is for a cluster version that the release does not have.
	VersionNotSpoken Code = "VERSION_NOT_SPOKEN"
	// LostData is for other data than those that the cluster remembers of the member.
	LostData Code = "LOST_DATA"
	// CopiedData is for two processes that are one member. The one that goes on reports it, too.
	CopiedData Code = "COPIED_DATA"
	// Removed is for a member that the cluster has removed.
	Removed Code = "REMOVED"
	// StatesDiffer is for a state that is not that of the majority.
	StatesDiffer Code = "STATES_DIFFER"
	// RolledBack is for data that are older than what the member has promised.
	RolledBack Code = "ROLLED_BACK"
	// Contradicted is for a member whose disk another one contradicts in another way.
	Contradicted Code = "CONTRADICTED"
	// NotApplicable is for an entry of the log that no member of the release can apply.
	NotApplicable Code = "ENTRY_NOT_APPLICABLE"
	// Damaged is for data that are not those that were written.
	Damaged Code = "DAMAGED"
	// HalfRestored is for a directory into which a restore was cut off.
	HalfRestored Code = "HALF_RESTORED"
	// InUse is for a directory that another process has.
	InUse Code = "IN_USE"
	// ForeignData is for a directory of another program.
	ForeignData Code = "FOREIGN_DATA"
	// DiskFull is for a disk without room. A member that runs reports it.
	DiskFull Code = "DISK_FULL"
	// BackupsFail is for backups that have failed for a while. The leader reports it.
	BackupsFail Code = "BACKUPS_FAIL"
	// DiskFailed is for a write or a read that the disk has not done.
	DiskFailed Code = "DISK_FAILED"
	// Failed is for everything else.
	Failed Code = "FAILED"
)

// Why a member, or a cluster, does not answer.
const (
	// NoLeader is for a member that knows no leader. It tells so in the ErrorInfo of a refusal, too.
	NoLeader Code = "NO_LEADER"
	// NoState is for a member without the state of its cluster, also in ErrorInfo.
	NoState Code = "NO_STATE"
	// Refused is for a host that answers, and has no process at the port.
	Refused Code = "REFUSED"
	// Unreachable is for an address that takes no connection for another reason.
	Unreachable Code = "UNREACHABLE"
	// Hangs is for a process that takes connections and answers no call.
	Hangs Code = "HANGS"
	// NotAMember is for a port at which nobody has the calls of a member.
	NotAMember Code = "NOT_A_MEMBER"
	// NotStarted is for a member that was added and has never run.
	NotStarted Code = "NOT_STARTED"
	// CallFailed is for a call that failed on a connection, for a reason that the text tells.
	CallFailed Code = "CALL_FAILED"
	// LoginRequired is for a call that the member refused because of a missing or wrong login.
	LoginRequired Code = "LOGIN_REQUIRED"
	// NoAnswer is for a cluster of which no member answers.
	NoAnswer Code = "NO_ANSWER"
	// NoMajority is for one of which too few do.
	NoMajority Code = "NO_MAJORITY"
	// NotServing is for one of which enough do, and that does not serve.
	NotServing Code = "NOT_SERVING"
)

// What recover finds besides.
const (
	// CertificateExpired is for certificates that are not valid now.
	CertificateExpired Code = "CERTIFICATE_EXPIRED"
	// TwoClusters is for endpoints of several clusters.
	TwoClusters Code = "TWO_CLUSTERS"
	// OtherCluster is for a directory of another cluster than the one that answers.
	OtherCluster Code = "OTHER_CLUSTER"
	// QuotaUsedUp is for a state as large as the quota.
	QuotaUsedUp Code = "QUOTA_USED_UP"
	// NotRunning is for a member whose data are sound, and that nobody runs.
	NotRunning Code = "NOT_RUNNING"
	// Split is for states that differ, without a majority that agrees.
	Split Code = "SPLIT"
	// DiskLost is for a member without data.
	DiskLost Code = "DISK_LOST"
	// NoData is for a host without data of a cluster that does not serve.
	NoData Code = "NO_DATA"
	// Reported is for what a member reports without a code.
	Reported Code = "REPORTED"
)
