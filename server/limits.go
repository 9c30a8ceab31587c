package server

// These are the most of what Limits may say. A request becomes one command of the log, which is
// longer by up to 128 bytes for each of its operations (fsm.Size). An entry may be longer than
// that by maxBatchBytes, and must be shorter than a message that a member takes from another.
const (
	maxRequestBytes = 32 << 20
	maxTxnOps       = 1 << 14
)

const limitsText = "--max-request-bytes must be at least 1 and at most %d (32 MiB), " +
	"--max-txn-ops at least 1 and at most %d"

// fit reports whether what is within the limits can be replicated.
func (l *Limits) fit() bool {
	return l.MaxRequestBytes >= 1 && l.MaxRequestBytes <= maxRequestBytes &&
		l.MaxTxnOps >= 1 && l.MaxTxnOps <= maxTxnOps
}
