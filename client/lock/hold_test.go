package lock

import "leasehold.dev/client"

// All that rests on a lease has the methods of a Hold.
var (
	_ client.Hold = (*Held)(nil)
	_ client.Hold = (*Leading)(nil)
)
