package store

// Txn does one of two lists of operations: the whole list in one revision, or nothing. It is an
// [Op], too.
type Txn struct {
	// If are the conditions. If all hold, Then is done, otherwise Else.
	If         []Compare
	Then, Else []Op
}

// Op is an operation of a transaction: a [Put], [Delete], [Range], [Txn] or [DrawToken], a
// client.Grant, or a pointer to one of these; or the result of Renew or Revoke of a leases.Ref.
type Op interface {
	// Operation does nothing: it marks the types that are operations.
	Operation()
}

// DrawToken draws the next fencing token, from the same sequence as the tokens of leases. The
// token is larger than every earlier one, no lease has it, and it is never given out again, not
// even after a restore from a backup. Nothing else changes, not even the revision.
type DrawToken struct{}

// Wait says which key of a wait queue waits. The queue is the keys that are attached to a lease and
// consist of the prefix and the ID of a lease in hexadecimal digits, with a dot and a number or
// without. They are ordered by when they were made.
type Wait struct {
	// Key is the key that waits, one of the queue's.
	Key string
	// Prefix is the prefix of the queue. It ends in a character that no ID has, such as a slash.
	Prefix string
	// Permits is how many keys may be ready at once: a key is ready when fewer than so many are
	// before it; 0 means 1.
	Permits int64
	// IgnoredValue, if not nil, is the value of keys that this key does not wait for.
	IgnoredValue []byte
}
