// Package process runs servers as processes, for tests from outside and for
// comparisons: it builds the binary, finds ports that are free, starts the
// process with a file for what it says, and sees its end.
//
// It knows nothing of what a server does. When one is ready, and what it is told,
// is its caller's. Everything may be called concurrently.
package process
