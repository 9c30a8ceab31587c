package store

// Txn executes one of two lists of operations: the whole list in one revision, or nothing. It is
// itself an [Op].
type Txn struct {
	// If contains the conditions. If all of them hold, Then is executed, otherwise Else.
	If         []Compare
	Then, Else []Op
}

// Op is an operation of a transaction: a [Put], [Delete], [Range], [Txn] or [DrawToken], a
// client.Grant, or a pointer to one of these; or the result of Renew or Revoke of a leases.Ref.
type Op interface {
	// Operation does nothing: it marks the types that are operations.
	Operation()
}

// DrawToken draws the next fencing token, from the same sequence as the tokens of leases. The token
// is larger than all earlier ones, no lease has it, and it is never issued again, not even after a
// restore from a backup. Nothing else changes, not even the revision.
type DrawToken struct{}

// Wait names a waiting key in a wait queue. The queue consists of the keys that are attached to a
// lease and whose name is the prefix, the ID of a lease in hexadecimal, and optionally a dot and a
// number. They are ordered by their creation.
type Wait struct {
	// Key is the waiting key, which is in the queue.
	Key string
	// Prefix is the prefix of the queue. It ends in a character that no ID contains, such as a
	// slash.
	Prefix string
	// Permits is how many keys may be ready at the same time: a key is ready if fewer keys than
	// this are before it. 0 means 1.
	Permits int64
	// IgnoredValue, if not nil, is the value of keys for which this key does not wait.
	IgnoredValue []byte
}
