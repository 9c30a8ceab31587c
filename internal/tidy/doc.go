// Package tidy holds tests of the repository itself: which package may import which, what the
// deterministic packages must not touch, how large types and public packages may become, and
// that documents refer only to what exists.
//
// A rule is here if breaking it has hurt before and neither the compiler, go vet nor staticcheck
// would notice. There is nothing to import. Run the rules with
//
//	go test ./internal/tidy
package tidy
