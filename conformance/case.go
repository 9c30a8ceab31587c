package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// testCase is one case in a file.
type testCase struct {
	// Name is the name of the file, a slash, and the name of the case.
	Name  string
	Given given
	// Clients maps client names to the arguments of connect. If it is empty, there is one client
	// named "a".
	Clients map[string]args
	// Fast cases take at most a second or two, and run before every change is merged.
	Fast bool
	// Without maps a language to the reason why its client does not support the case.
	Without map[string]string
	Steps   []args
}

// given describes the cluster of a case. Cases with the same description share a cluster unless
// they require their own.
type given struct {
	Members int
	Relay   bool
	TLS     bool
	Users   bool
	Own     bool
	// Flags lists additional flags for the members.
	Flags []string
}

// args holds the arguments of a step or a request.
type args map[string]any

// text returns an argument as text, or "" if it is missing.
func (a args) text(key string) string {
	if a[key] == nil {
		return ""
	}
	return fmt.Sprint(a[key])
}

// list returns an argument as a list of strings.
func (a args) list(key string) []string {
	switch v := a[key].(type) {
	case nil:
		return nil
	case []any:
		var out []string
		for _, x := range v {
			out = append(out, fmt.Sprint(x))
		}
		return out
	default:
		return []string{fmt.Sprint(v)}
	}
}

// loadCases reads the matching cases from a directory.
func loadCases(dir string, match *regexp.Regexp) ([]*testCase, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var out []*testCase
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var cases []*testCase
		d := yaml.NewDecoder(strings.NewReader(string(text)))
		d.KnownFields(true)
		if err := d.Decode(&cases); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, c := range cases {
			c.Name = strings.TrimSuffix(filepath.Base(file), ".yaml") + "/" + c.Name
			if err := c.complete(); err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name, err)
			}
			if slices.ContainsFunc(out, func(o *testCase) bool { return o.Name == c.Name }) {
				return nil, fmt.Errorf("%s: duplicate name", c.Name)
			}
			out = append(out, c)
		}
	}
	return slices.DeleteFunc(out, func(c *testCase) bool { return !match.MatchString(c.Name) }), nil
}

// ownKeys lists the keys of a step that the runner handles. All other keys are passed to the
// driver.
var ownKeys = []string{"do", "want", "error", "text", "save", "later", "within_ms"}

// verbs lists the steps that are not requests, with their arguments.
var verbs = map[string][]string{
	"await":   {"want", "error", "text", "save", "within_ms"},
	"pending": {"for_ms"},
	"sleep":   nil,
	"fault":   {"client", "member", "ms", "way"},
	"cluster": {"revision", "user", "role", "key", "password"},
	"compare": {"want"},
}

// complete sets defaults and validates the case as far as possible without running it.
func (c *testCase) complete() error {
	if c.Given.Members == 0 {
		c.Given.Members = 1
	}
	if len(c.Clients) == 0 {
		c.Clients = map[string]args{"a": {}}
	}
	awaited := map[string]bool{"": true}
	for i, s := range slices.Backward(c.Steps) {
		if err := c.checkStep(s); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		awaited[s.text("await")] = true
		if later := s.text("later"); !awaited[later] && !c.dies(s) {
			return fmt.Errorf("step %d: the answer %q is never awaited", i+1, later)
		}
		if s.text("fault") != "" && s["member"] != nil && s["client"] == nil {
			c.Given.Own = true
		}
	}
	return nil
}

// dies reports whether a step's client is killed later, in which case there may be no answer.
func (c *testCase) dies(s args) bool {
	client, _, _ := strings.Cut(s.text("do"), ".")
	return slices.ContainsFunc(c.Steps, func(x args) bool {
		return x.text("fault") == "kill" && x.text("client") == client
	})
}

func (c *testCase) checkStep(s args) error {
	if do := s.text("do"); do != "" {
		client, op, _ := strings.Cut(do, ".")
		if _, ok := c.Clients[client]; !ok || !slices.Contains(ops, op) {
			return fmt.Errorf("%q is not a known client and operation, such as a.put", do)
		}
		if s["later"] != nil && (s["want"] != nil || s["error"] != nil || s["save"] != nil) {
			return fmt.Errorf("%q must not have both expectations and later", do)
		}
		return nil
	}
	for verb, has := range verbs {
		if s[verb] == nil {
			continue
		}
		for key := range s {
			if key != verb && !slices.Contains(has, key) {
				return fmt.Errorf("%s has no %q", verb, key)
			}
		}
		return nil
	}
	return fmt.Errorf("unknown: %v", s)
}

// ops lists the operations that drivers implement.
var ops = []string{
	"connect", "clock", "put", "get", "range", "delete", "txn", "grant", "renew", "revoke",
	"describe", "leases", "check_token", "session", "check", "wait_ended", "release", "run", "runs",
	"stop_run", "lock", "campaign", "proclaim", "leader", "observe", "next", "register", "update",
	"members", "watch", "unwatch", "busy",
}
