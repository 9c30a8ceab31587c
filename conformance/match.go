package main

import (
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
)

// match compares a value with an expected one. For an object, it compares only the named fields;
// for a list, all elements; for anything else, the text. An expected object whose only key is an
// operator is a comparison. match returns a description of the difference, or "".
func match(want, got any) string {
	if w, ok := fields(want); ok {
		return matchFields(w, got)
	}
	switch w := want.(type) {
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Sprintf("is %v, want a list of %d elements", got, len(w))
		}
		for i := range w {
			if d := match(w[i], g[i]); d != "" {
				return fmt.Sprintf("[%d] %s", i, d)
			}
		}
		return ""
	case nil:
		if got != nil {
			return fmt.Sprintf("is %v, want nothing", got)
		}
		return ""
	}
	if got == nil || fmt.Sprint(want) != fmt.Sprint(got) {
		return fmt.Sprintf("is %v, want %v", got, want)
	}
	return ""
}

// fields returns an object from a case or an answer as args.
func fields(x any) (args, bool) {
	switch x := x.(type) {
	case args:
		return x, true
	case map[string]any:
		return x, true
	}
	return nil, false
}

func matchFields(want args, got any) string {
	if len(want) == 1 {
		for op, with := range want {
			holds, known := compare(op, got, with)
			if known && !holds {
				return fmt.Sprintf("is %v, want %s %v", got, op, with)
			}
			if known {
				return ""
			}
		}
	}
	g, ok := fields(got)
	if !ok {
		return fmt.Sprintf("is %v, want an object", got)
	}
	for key, w := range want {
		if d := match(w, g[key]); d != "" {
			return strings.TrimPrefix(key+" "+d, " ")
		}
	}
	return ""
}

// compare applies operator op to got and with. known is false if op is not an operator.
func compare(op string, got, with any) (holds, known bool) {
	c, ok := order(got, with)
	switch op {
	case "gt":
		return ok && c > 0, true
	case "ge":
		return ok && c >= 0, true
	case "lt":
		return ok && c < 0, true
	case "le":
		return ok && c <= 0, true
	case "ne":
		return got != nil && fmt.Sprint(got) != fmt.Sprint(with), true
	case "in":
		list, _ := with.([]any)
		return slices.ContainsFunc(list, func(x any) bool { return match(x, got) == "" }), true
	case "matches":
		ok, err := regexp.MatchString(fmt.Sprint(with), fmt.Sprint(got))
		return got != nil && ok && err == nil, true
	}
	return false, false
}

// order compares two numbers of any size.
func order(a, b any) (int, bool) {
	x, okX := new(big.Rat).SetString(fmt.Sprint(a))
	y, okY := new(big.Rat).SetString(fmt.Sprint(b))
	if !okX || !okY {
		return 0, false
	}
	return x.Cmp(y), true
}

// variables holds the values saved by steps.
type variables map[string]string

var variable = regexp.MustCompile(`\$\{?\w+\}?`)

// expand replaces the variables in the strings within a value. It returns an error if a variable is
// not set.
func (v variables) expand(x any) (any, error) {
	if f, ok := fields(x); ok {
		return v.expandFields(f)
	}
	switch x := x.(type) {
	case string:
		var err error
		return variable.ReplaceAllStringFunc(x, func(name string) string {
			value, ok := v[strings.Trim(name, "${}")]
			if !ok {
				err = fmt.Errorf("%s is not set", name)
			}
			return value
		}), err
	case []any:
		out := make([]any, len(x))
		for i := range x {
			var err error
			if out[i], err = v.expand(x[i]); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return x, nil
}

func (v variables) expandFields(x args) (args, error) {
	out := args{}
	for key, value := range x {
		e, err := v.expand(value)
		if err != nil {
			return nil, err
		}
		out[key] = e
	}
	return out, nil
}

// save saves fields of an answer. Names are separated by dots, with numbers for list elements, as
// in "kvs.0.lease".
func (v variables) save(names, answer any) error {
	list, ok := fields(names)
	if !ok {
		return fmt.Errorf("save: %v is not an object", names)
	}
	for name, path := range list {
		at := answer
		for part := range strings.SplitSeq(fmt.Sprint(path), ".") {
			switch x := at.(type) {
			case map[string]any:
				at = x[part]
			case []any:
				var i int
				if _, err := fmt.Sscan(part, &i); err != nil || i >= len(x) {
					return fmt.Errorf("save %s: no element %s in %v", name, part, at)
				}
				at = x[i]
			}
		}
		if at == nil {
			return fmt.Errorf("save %s: the answer does not contain %v", name, path)
		}
		v[name] = fmt.Sprint(at)
	}
	return nil
}
