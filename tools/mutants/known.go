package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// readKnown reads the known surviving mutants. Each line consists of a name, a tab, and a reason.
func readKnown(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	known := make(map[string]string)
	s := bufio.NewScanner(f)
	for line := 1; s.Scan(); line++ {
		if s.Text() == "" || strings.HasPrefix(s.Text(), "#") {
			continue
		}
		name, reason, ok := strings.Cut(s.Text(), "\t")
		if !ok || reason == "" {
			return nil, fmt.Errorf("%s:%d: want a name, a tab and a reason", path, line)
		}
		known[name] = reason
	}
	return known, s.Err()
}

// isEqual reports whether the reason says that the mutant is equivalent to the code.
func isEqual(reason string) bool { return strings.HasPrefix(reason, "equal: ") }
