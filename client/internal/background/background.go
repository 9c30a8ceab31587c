// Package background lets packages built on the client finish a release after the caller's context
// has ended. Package client sets the hook during initialization.
package background

import (
	"context"
	"time"
)

// Start runs f on a goroutine owned by a *client.Client. The client's Close waits for f for a
// limited time, and then cancels its context.
var Start func(client any, f func(context.Context))

// Wait is how long calls such as Mutex.Do, which run a function of the program and then release a
// hold, wait for that release. After that, the release continues in the background.
const Wait = time.Second

// Release runs f, which releases something. If the context ends before f succeeds, Release returns
// f's error and, if most is positive, runs f a second time in the background, for at most that
// long. The client's Close waits for the second run.
func Release(
	ctx context.Context, client any, most time.Duration, f func(context.Context) error,
) error {
	err := f(ctx)
	if err != nil && ctx.Err() != nil && most > 0 {
		Start(client, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, most)
			defer cancel()
			_ = f(ctx) // the lease ends after its TTL in any case
		})
	}
	return err
}
