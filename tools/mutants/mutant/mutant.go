// Package mutant is called only by code that the mutation tool has changed. Each call behaves like
// the original code unless the environment variable [Active] contains the number of its mutant. A
// single binary, compiled once, can therefore contain all mutants.
//
// If the variable [Reached] names a file, the number of each mutant that is reached is written to
// that file, one per line. All functions can be called concurrently.
package mutant

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"sync"
)

// These are the environment variables that control the package.
const (
	Active  = "LEASEHOLD_MUTANT"
	Reached = "LEASEHOLD_MUTANTS_REACHED"
)

// active is the number of the active mutant. Numbers start at 1.
var active = number(os.Getenv(Active))

// reached is nil unless Reached is set.
var reached = open(os.Getenv(Reached))

// A record writes each number once.
type record struct {
	mu   sync.Mutex
	seen map[int]bool
	file *os.File
}

func number(text string) int {
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(fmt.Sprintf("mutant: %s=%q: want a number", Active, text))
	}
	return n
}

func open(path string) *record {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(fmt.Sprintf("mutant: %v", err))
	}
	return &record{seen: make(map[int]bool), file: f}
}

// on reports whether mutant n is active.
func on(n int) bool {
	if reached != nil {
		reached.add(n)
	}
	return n == active
}

func (r *record) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[n] {
		return
	}
	r.seen[n] = true
	if _, err := fmt.Fprintln(r.file, n); err != nil {
		panic(fmt.Sprintf("mutant: %v", err))
	}
}

// Integer is the constraint for values that [OneMore] can change.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// A mutant that would make no difference at a call does not count as reached there. Each function
// therefore consults on only if the result depends on it.

// Condition returns c. Mutant n makes it true, and mutant n+1 makes it false.
func Condition[T ~bool](n int, c T) T {
	if c {
		return !T(on(n + 1))
	}
	return T(on(n))
}

// True returns c. Mutant n makes it true.
func True[T ~bool](n int, c T) T { return c || T(on(n)) }

// False returns c. Mutant n makes it false.
func False[T ~bool](n int, c T) T { return c && !T(on(n)) }

// Not returns c. Mutant n negates it.
func Not[T ~bool](n int, c T) T { return c != T(on(n)) }

// Less returns a < b. Mutant n makes it a <= b.
func Less[T cmp.Ordered](n int, a, b T) bool { return a < b || a == b && on(n) }

// LessEqual returns a <= b. Mutant n makes it a < b.
func LessEqual[T cmp.Ordered](n int, a, b T) bool { return a < b || a == b && !on(n) }

// Greater returns a > b. Mutant n makes it a >= b.
func Greater[T cmp.Ordered](n int, a, b T) bool { return a > b || a == b && on(n) }

// GreaterEqual returns a >= b. Mutant n makes it a > b.
func GreaterEqual[T cmp.Ordered](n int, a, b T) bool { return a > b || a == b && !on(n) }

// OneMore returns v. Mutant n adds one.
func OneMore[T Integer](n int, v T) T {
	if on(n) {
		return v + 1
	}
	return v
}

// Min returns the lesser of a and b. Mutant n makes it a, and mutant n+1 makes it b.
func Min[T cmp.Ordered](n int, a, b T) T { return pick(n, a, b, a < b) }

// Max returns the greater of a and b. Mutant n makes it a, and mutant n+1 makes it b.
func Max[T cmp.Ordered](n int, a, b T) T { return pick(n, a, b, a > b) }

// pick returns a if first is true, and b otherwise. Mutant n makes it a, and mutant n+1 makes it b.
func pick[T comparable](n int, a, b T, first bool) T {
	switch {
	case a == b:
		return a
	case first && on(n+1), !first && !on(n):
		return b
	}
	return a
}

// Keep returns true. Mutant n omits the statements that depend on it.
func Keep(n int) bool { return !on(n) }

// NoError returns err. Mutant n drops it.
func NoError(n int, err error) error {
	if err == nil || on(n) {
		return nil
	}
	return err
}
