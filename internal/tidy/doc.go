// Package tidy holds the tests that keep the rules of this project by machine:
// which package may import which, what the pure packages must not touch, how
// long a function, a file and a line may be, what is documented, how tests
// wait, how a commit introduces itself, and that what documents and comments
// refer to is there.
//
// There is no code here to import. Run the rules with
//
//	go test ./internal/tidy
//
// A rule that would make some place worse is broken there, openly: the place
// and the reason go into the list in exceptions_test.go. An exception that is
// no longer needed fails too, so the list never grows old.
package tidy
