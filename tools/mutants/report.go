package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// A row counts the mutants of a package by outcome.
type row struct{ tried, own, others, hung, known, lived int }

// report prints a table, followed by the survivors with their outcome, name and position.
func (c *campaign) report(all []Mutant, chosen []int) error {
	rows := make(map[string]*row)
	var lived []string
	for _, n := range chosen {
		m := all[n-1]
		fate, ok := c.fates[n]
		if !ok {
			continue // not tried because time ran out
		}
		r := rows[m.Dir()]
		if r == nil {
			r = &row{}
			rows[m.Dir()] = r
		}
		if r.count(fate, c.by[n] == m.Dir(), c.known[m.Name] != "") {
			at := fmt.Sprintf("%s:%d", m.Pos.Filename, m.Pos.Line)
			lived = append(lived, fmt.Sprintf("%s\t%s\t%s", fate, m.Name, at))
		}
	}
	fmt.Println("| package | tried | own tests | others | hung | known | lived | died |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, dir := range slices.Sorted(maps.Keys(rows)) {
		r := rows[dir]
		fmt.Printf("| `%s` | %d | %d | %d | %d | %d | %d | %.1f%% |\n", dir, r.tried, r.own, r.others,
			r.hung, r.known, r.lived, 100*float64(r.own+r.others+r.hung)/float64(r.tried))
	}
	for _, l := range lived {
		fmt.Println(l)
	}
	return c.judge(rows)
}

// judge returns an error for packages with too many survivors. The limit for a finished package is
// 3%. A sample can exceed the limit by chance, so only an excess of more than three standard
// deviations of a binomial distribution counts.
func (c *campaign) judge(rows map[string]*row) error {
	var errs []error
	for _, dir := range slices.Sorted(maps.Keys(rows)) {
		share, r := (100-c.least)/100, rows[dir]
		if slices.Contains(finished, dir) {
			share = 0.03
		}
		mean := share * float64(r.tried)
		if most := mean + 3*math.Sqrt(mean*(1-share)); float64(r.lived) > most {
			errs = append(errs, fmt.Errorf("%s: %d of %d mutants survive and are not listed in "+
				"known.txt; the limit is %d", dir, r.lived, r.tried, int(most)))
		}
	}
	return errors.Join(errs...)
}

// count counts a mutant and reports whether it survived but should not have.
func (r *row) count(fate Fate, own, known bool) bool {
	r.tried++
	switch {
	case fate == Hung:
		r.hung++
	case fate == Died && own:
		r.own++
	case fate == Died:
		r.others++
	case known:
		r.known++
	default:
		r.lived++
		return true
	}
	return false
}
