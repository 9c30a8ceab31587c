package nodes

import "leasehold.dev/client"

// All that rests on a lease has the methods of a Hold.
var (
	_ client.Hold = (*Node)(nil)
	_ client.Hold = (*Primacy)(nil)
)
