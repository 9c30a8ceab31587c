package members

import "leasehold.dev/client"

// All that rests on a lease has the methods of a Hold.
var _ client.Hold = (*Membership)(nil)
