package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCases checks that all files can be read, and that there are enough cases, some of them fast.
func TestCases(t *testing.T) {
	cases, err := loadCases("cases", regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	fast := 0
	for _, c := range cases {
		if c.Fast {
			fast++
		}
	}
	if len(cases) < 120 || fast < 20 || fast > 30 {
		t.Errorf("%d cases, %d fast", len(cases), fast)
	}
}

func TestMatch(t *testing.T) {
	got := map[string]any{
		"n": 9223372036854775807, "text": "abc", "list": []any{1, "2"}, "none": nil, "f": "1.5",
	}
	for _, c := range []struct {
		want any
		ok   bool
	}{
		{args{"n": "9223372036854775807"}, true},
		{args{"n": args{"gt": "9223372036854775806"}}, true},
		{args{"n": args{"gt": "9223372036854775807"}}, false},
		{args{"n": args{"ge": "9223372036854775807"}}, true},
		{args{"f": args{"lt": 2}}, true},
		{args{"f": args{"le": 1}}, false},
		{args{"text": args{"lt": 2}}, false},
		{args{"text": args{"matches": "^a"}}, true},
		{args{"none": args{"matches": ""}}, false},
		{args{"text": args{"in": []any{"x", "abc"}}}, true},
		{args{"text": args{"ne": "abc"}}, false},
		{args{"text": args{"ne": "ab"}}, true},
		{args{"missing": args{"ne": "abc"}}, false},
		{args{"text": "abc", "list": []any{1, 2}}, true},
		{args{"list": []any{1}}, false},
		{args{"none": nil}, true},
		{args{"text": nil}, false},
		{args{"missing": nil}, true},
		{args{"missing": 1}, false},
		{args{"text": args{"deeper": 1}}, false},
	} {
		if d := match(c.want, got); (d == "") != c.ok {
			t.Errorf("%v: %q", c.want, d)
		}
	}
}

func TestVariables(t *testing.T) {
	v := variables{"ns": "app/1"}
	answer := map[string]any{"kvs": []any{map[string]any{"lease": 7}}, "none": nil}
	if err := v.save(args{"l": "kvs.0.lease"}, answer); err != nil || v["l"] != "7" {
		t.Errorf("saved %v, %v", v, err)
	}
	for _, path := range []string{"kvs.1.lease", "none", "other"} {
		if err := v.save(args{"x": path}, answer); err == nil {
			t.Errorf("%s was saved", path)
		}
	}
	got, err := v.expand(args{"keys": []any{"$ns/$l", 3}, "in": args{"k": "${ns}0"}})
	if err != nil || match(args{"keys": []any{"app/1/7", 3}, "in": args{"k": "app/10"}}, map[string]any(got.(args))) != "" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := v.expand("$unset"); err == nil {
		t.Error("an unset variable was expanded")
	}
}

func TestSteps(t *testing.T) {
	c := &testCase{Clients: map[string]args{"a": {}}}
	for _, wrong := range []args{
		{"do": "b.get"},
		{"do": "a.nothing"},
		{"fault": "kill", "members": 0},
		{"jump": 1},
		{"do": "a.get", "later": "x", "want": 1},
	} {
		if c.checkStep(wrong) == nil {
			t.Errorf("%v was accepted", wrong)
		}
	}
	forgotten := &testCase{Steps: []args{{"do": "a.get", "later": "x"}, {"pending": "x"}}}
	if forgotten.complete() == nil {
		t.Error("an answer that is never awaited was accepted")
	}
	broken := &testCase{Steps: []args{{"fault": "kill", "member": 0}}}
	if err := broken.complete(); err != nil || !broken.Given.Own {
		t.Errorf("a case that breaks members does not get its own: %v", err)
	}
}

func TestTable(t *testing.T) {
	table := newTable([]*testCase{{Name: "x/1"}, {Name: "x/2"}})
	table.add("x/1", "go", outcome{took: time.Second})
	table.add("x/2", "go", outcome{without: "no clock"})
	want := []string{"| x/1 | yes |", "| x/2 | - |", "- x/2, go: no clock."}
	lines := strings.Split(table.markdown(), "\n")
	for _, w := range want {
		if !slices.Contains(lines, w) {
			t.Errorf("no line %q in\n%s", w, table.markdown())
		}
	}
	if err := table.result(); err != nil {
		t.Error(err)
	}
}
