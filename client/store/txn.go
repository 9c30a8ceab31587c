package store

// Txn executes one of two lists of operations, atomically and in one revision. A Txn is itself an
// [Op].
type Txn struct {
	// If contains the conditions. If all of them hold, Then is executed; otherwise Else is
	// executed.
	If         []Compare
	Then, Else []Op
}

// Op is an operation in a transaction. It is a [Put], [Delete], [Range], [Txn], [DrawToken] or
// client.Grant, a pointer to one of these, or the result of calling Renew or Revoke on a
// leases.Ref.
type Op interface {
	// Operation does nothing. It marks the types that are operations.
	Operation()
}

// DrawToken draws the next fencing token from the same sequence as the tokens of leases. The token
// is larger than all earlier tokens and does not belong to any lease. It is never issued again, not
// even after a restore from a backup. DrawToken changes nothing else, not even the revision.
type DrawToken struct{}

// Wait identifies a waiting key in a wait queue. The queue consists of keys that are attached to a
// lease. The name of each key is the prefix, followed by a lease ID in hexadecimal and, optionally,
// a dot and a number. The keys are ordered by creation.
type Wait struct {
	// Key is the waiting key, which must be in the queue.
	Key string
	// Prefix is the prefix of the queue. Its last character must not occur in IDs; a slash is
	// suitable.
	Prefix string
	// Permits is the number of keys that can be ready at the same time: a key is ready if fewer
	// than Permits keys are ahead of it. 0 means 1.
	Permits int64
	// IgnoredValue, if not nil, identifies keys to ignore: this key does not wait for keys with
	// that value.
	IgnoredValue []byte
}
