// Package tidy contains tests of the repository itself: permitted imports, restrictions on the
// deterministic packages, limits on the size of types and public packages, and references in
// documents, which must exist.
//
// A rule is here if a violation has caused harm before and neither the compiler, go vet nor
// staticcheck would detect it. The package exports nothing. Run the tests with
//
//	go test ./test/tidy
package tidy
