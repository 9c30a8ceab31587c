// Package background lets the packages above the client finish a release after the caller's
// context has ended. Package client sets the hook when it is initialized.
package background

import (
	"context"
	"time"
)

// Start runs f on a goroutine of a *client.Client. The client's Close waits for f, for a bounded
// time, and then ends the context of f.
var Start func(client any, f func(context.Context))

// Wait is how long a call that has run the program's function under a hold waits for the release
// before it leaves that to the background.
const Wait = time.Second

// Release runs f, which releases something. If the context ends before f succeeds, Release
// returns the error and runs f once more in the background, for at most the given time if that is
// above 0. The client's Close waits for that.
func Release(
	ctx context.Context, client any, most time.Duration, f func(context.Context) error,
) error {
	err := f(ctx)
	if err != nil && ctx.Err() != nil && most > 0 {
		Start(client, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, most)
			defer cancel()
			_ = f(ctx) // the lease ends after its TTL anyway
		})
	}
	return err
}
