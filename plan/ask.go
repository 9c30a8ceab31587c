package plan

import (
	"github.com/spf13/pflag"
)

// A Question is a question that this package answers.
type Question interface {
	// Flags adds a flag for each input, with its default value.
	Flags(fs *pflag.FlagSet)
	// Answer computes the answer. It returns an InputError if the inputs are impossible.
	Answer() (Report, error)
}

// Questions maps command names to constructors of questions that need only flags.
var Questions = map[string]func() Question{
	"length":   func() Question { return new(LengthQuestion) },
	"levels":   func() Question { return new(levelsQuestion) },
	"outage":   func() Question { return new(OutageQuestion) },
	"caches":   func() Question { return new(cachesQuestion) },
	"capacity": func() Question { return new(CapacityQuestion) },
}

// A Report is a human-readable answer.
type Report struct {
	// Figures holds name-value pairs.
	Figures [][2]string
	// Head and Rows form a table. The table can be empty.
	Head []string
	Rows [][]string
	// Sentences explains the result and includes its figures.
	Sentences []string
	// Data is the result as a value.
	Data any
}
