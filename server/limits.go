package server

import (
	"fmt"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/transport"
)

// A request becomes a command, which shares a log entry with others. The entry must fit into one
// message to each other member. So must a command that is forwarded to the leader:
//
//	largest request <= largest command < largest entry < largest message
//
// The maximum message size is the same for all members. A message has room for the largest command
// that any member accepts (replica.MaxCommand), a batch, and the rest of a message. If it did not,
// this constant would not compile.
const _ = uint(transport.MaxMessage - replica.MaxCommand - maxBatchBytes - replica.MaxBeside)

const (
	// maxTxnOps is the maximum value of Limits.MaxTxnOps.
	maxTxnOps = 1 << 14
	// opGrowth is how much longer an operation can be in the log than in a request. A lease ID is
	// encoded in more bytes, and a secret, a bound, or the client's name is added.
	opGrowth = 128
	// requestGrowth is how much longer the rest of a request, without its operations, can be in the
	// log. It includes the rest of a message.
	requestGrowth = 1 << 20
)

// quota returns the quota to publish. It is never 0, because 0 would mean unknown.
func (l *Limits) quota() int64 {
	if l.QuotaBackendBytes <= 0 {
		return -1
	}
	return l.QuotaBackendBytes
}

// check returns an error that lists the invalid limits.
func (l *Limits) check() error {
	ops, q := l.MaxTxnOps, l.QuotaBackendBytes
	badOps := ops < 1 || ops > maxTxnOps
	growth := int64(requestGrowth + opGrowth*api.MaxOperations(max(1, min(ops, maxTxnOps))))
	return broken(
		rule{badOps, fmt.Sprintf("--max-txn-ops must be at least 1 and at most %d", maxTxnOps)},
		rule{l.MaxRequestBytes < 1, "--max-request-bytes must be at least 1"},
		rule{q > 0 && q < fsm.MinQuota, fmt.Sprintf("--quota-backend-bytes %d is too small: seven "+
			"members and the records that are always kept for clients take up to %d bytes, and there must be "+
			"room for keys and leases; set at least %d, or a negative number for no quota",
			q, fsm.MinQuota/3, fsm.MinQuota)},
		rule{!badOps && l.MaxRequestBytes > replica.MaxCommand-growth, fmt.Sprintf(
			"--max-request-bytes %d is too large: with --max-txn-ops %d a request may take %d bytes "+
				"in the log, but a message to another member (%d bytes) has room for only %d; "+
				"set at most %d", l.MaxRequestBytes, ops, uint64(l.MaxRequestBytes)+uint64(growth),
			transport.MaxMessage, replica.MaxCommand, replica.MaxCommand-growth)},
	)
}
