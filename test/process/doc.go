// Package process runs servers as processes, for tests from outside and for
// comparisons: it builds the binary, finds ports that are free, starts the
// process with a file for what it says, and sees its end.
//
// It does not depend on what a server does: the caller chooses the arguments and decides when a
// server is ready. Everything may be called concurrently.
package process
