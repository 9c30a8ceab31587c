package serve

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"leasehold.dev/internal/settings"
)

// inFile maps each section of a configuration file to the names in it and the flags that they set.
// The sections are the same as in etcd.
var inFile = map[string]map[string]string{
	"client-transport-security": {
		"cert-file": "cert-file", "key-file": "key-file", "client-cert-file": "client-cert-file",
		"client-key-file": "client-key-file", "client-cert-auth": "client-cert-auth",
		"trusted-ca-file": "trusted-ca-file", "auto-tls": "auto-tls", "crl-file": "client-crl-file",
		"allowed-cn": "client-cert-allowed-cn", "allowed-hostname": "client-cert-allowed-hostname",
		"skip-client-san-verification": "",
	},
	"peer-transport-security": {
		"cert-file": "peer-cert-file", "key-file": "peer-key-file",
		"client-cert-file": "peer-client-cert-file", "client-key-file": "peer-client-key-file",
		"client-cert-auth": "peer-client-cert-auth", "trusted-ca-file": "peer-trusted-ca-file",
		"auto-tls": "peer-auto-tls", "crl-file": "peer-crl-file", "allowed-cn": "peer-cert-allowed-cn",
		"allowed-hostname":             "peer-cert-allowed-hostname",
		"skip-client-san-verification": "peer-skip-client-san-verification",
	},
}

// ignoredInFile lists names in etcd's configuration file that have no flag, and why they have no
// effect here.
var ignoredInFile = map[string]string{
	"discovery-config": noDiscovery, "socket-options": "each port belongs to one process",
	"client-transport-security.skip-client-san-verification": "host names in clients' " +
		"certificates are checked only against client-cert-allowed-hostname",
	"proxy": noProxy, "proxy-failure-wait": noProxy, "proxy-refresh-interval": noProxy,
	"proxy-dial-timeout": noProxy, "proxy-write-timeout": noProxy, "proxy-read-timeout": noProxy,
}

const noProxy = "there is no proxy; every member serves every call"

// notInFile lists the flags that cannot be set in a file.
var notInFile = []string{"config-file", "version"}

// setting is an assignment in a configuration file.
type setting struct {
	name  string // as in the file, including its section
	flag  string // "" if it is ignored
	line  int
	value *yaml.Node
}

// readFile sets flags from the file named by --config-file, if any. The command line and
// environment variables override the file. Unknown names are errors, and so are values of the wrong
// type, even if they are overridden.
func (f *flags) readFile() (warnings []string, err error) {
	if f.configFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(f.configFile)
	if err != nil {
		return nil, usageError("--config-file: %v", err)
	}
	given, err := f.settings(text)
	if given == nil {
		return nil, err
	}
	tried := newFlags()
	errs := []error{err}
	for _, s := range given {
		if s.flag == "" && (s.value.Value == "false" || s.value.Value == "off") {
			continue // etcd's default causes no warning
		}
		if s.flag == "" {
			warnings = append(warnings, fmt.Sprintf("setting %s in %s is accepted but ignored: %s",
				s.name, f.configFile, ignoredInFile[s.name]))
			continue
		}
		where := fmt.Sprintf("%s:%d", f.configFile, s.line)
		to := f
		if f.given[s.flag] {
			to = tried
		}
		x := to.fs.Lookup(s.flag)
		value, err := valueOf(x, s.value)
		if err == nil {
			err = x.Value.Set(value)
		}
		if err != nil {
			errs = append(errs, usageError("%s: invalid value for %s: %s", where, s.name, because(x, err)))
		} else if to == f {
			f.given[s.flag], f.from[s.flag] = true, "file "+where
		}
	}
	return warnings, errors.Join(errs...)
}

// settings reads the names in a file and finds the matching flags. If it returns an error, for
// example about unknown names, it also returns the valid settings.
func (f *flags) settings(text []byte) ([]setting, error) {
	root, err := settings.Parse(text)
	if err != nil {
		return nil, usageError("%s%v", f.configFile, err)
	}
	if root == nil {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, usageError("%s:%d: a configuration file must contain settings, such as \"name: a\"",
			f.configFile, root.Line)
	}
	var all []setting
	var errs []error
	fail := func(line int, format string, args ...any) {
		errs = append(errs, usageError("%s:%d: %s", f.configFile, line, fmt.Sprintf(format, args...)))
	}
	sections := make(map[string]int) // line number of each section
	for i := 0; i < len(root.Content); i += 2 {
		name, value := root.Content[i], root.Content[i+1]
		section, isSection := inFile[name.Value]
		line := sections[name.Value]
		switch {
		case !isSection:
			all = append(all, setting{name: name.Value, flag: name.Value, line: name.Line, value: value})
			continue
		case line != 0:
			fail(name.Line, "%s is already set on line %d", name.Value, line)
			continue
		}
		sections[name.Value] = name.Line
		if settings.IsNull(value) {
			continue
		}
		if value.Kind != yaml.MappingNode {
			fail(value.Line, "%s must contain settings, such as \"cert-file: server.crt\", each "+
				"on its own line", name.Value)
			continue
		}
		for j := 0; j < len(value.Content); j += 2 {
			n := value.Content[j]
			x, ok := section[n.Value]
			if !ok {
				fail(n.Line, "unknown setting %q in %s%s", n.Value, name.Value,
					didYouMean(n.Value, slices.Collect(maps.Keys(section))))
				continue
			}
			all = append(all, setting{
				name: name.Value + "." + n.Value, flag: x, line: n.Line, value: value.Content[j+1],
			})
		}
	}
	return f.vetSettings(all, fail), errors.Join(errs...)
}

// vetSettings reports unknown and duplicate names, and removes settings that have no value.
func (f *flags) vetSettings(all []setting, fail func(int, string, ...any)) []setting {
	kept := []setting{}
	first := make(map[string]setting)
	for _, s := range all {
		if ignoredInFile[s.name] != "" {
			s.flag = ""
		} else if f.fs.Lookup(s.flag) == nil || slices.Contains(notInFile, s.flag) {
			fail(s.line, "unknown setting %q%s", s.name, didYouMean(s.name, f.fileNames()))
			continue
		}
		if other, twice := first[s.flag]; twice && s.flag != "" {
			fail(s.line, "%s is already set, as %s on line %d", s.name, other.name, other.line)
			continue
		}
		first[s.flag] = s
		if !settings.IsNull(s.value) {
			kept = append(kept, s)
		}
	}
	return kept
}

// fileNames returns the names that a configuration file can contain outside of sections.
func (f *flags) fileNames() []string {
	names := slices.DeleteFunc(f.names(), func(n string) bool {
		return slices.Contains(notInFile, n)
	})
	names = slices.AppendSeq(names, maps.Keys(inFile))
	slices.Sort(names)
	return names
}

// didYouMean returns the end of an error about an unknown name.
func didYouMean(typed string, names []string) string {
	// etcd removes this prefix from a flag when it becomes stable.
	plain := strings.TrimPrefix(typed, "experimental-")
	if plain != typed && slices.Contains(names, plain) {
		return fmt.Sprintf("; did you mean %q?", plain)
	}
	// The user might have followed other naming conventions.
	plain = strings.ReplaceAll(strings.TrimPrefix(plain, "--"), "_", "-")
	if near := settings.Nearest(plain, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; see the flags in leasehold serve --help"
}

// valueOf converts a value to command-line text if it has the type of x.
func valueOf(x *flag.Flag, n *yaml.Node) (string, error) {
	n = settings.Resolve(n)
	var kind any = ""
	if g, ok := x.Value.(flag.Getter); ok {
		kind = g.Get()
	}
	_, ignored := x.Value.(*ignoredValue)
	switch n.Kind {
	case yaml.SequenceNode:
		if takesList(x) || ignored {
			return listOf(n)
		}
		return "", errors.New("it must be a single value, not a list")
	case yaml.MappingNode:
		return "", errors.New("it must be a single value, not a mapping")
	}
	_, isText := kind.(string)
	switch kind.(type) {
	case bool:
		if n.Tag != "!!bool" {
			return "", errors.New("it must be true or false, without quotes")
		}
	case time.Duration:
		// In etcd's file, durations are numbers of nanoseconds.
		if n.Tag == "!!int" && n.Value != "0" {
			return etcdDuration(x, n.Value)
		}
	case int, int64, uint, uint64:
		if n.Tag != "!!int" {
			return "", errors.New("it must be an integer, without quotes")
		}
	}
	if n.Tag == "!!bool" && isText && !ignored {
		return "", fmt.Errorf("it must be a string; quote it: \"%s\"", n.Value)
	}
	return n.Value, nil
}

// etcdDuration parses a duration in etcd's configuration file, which is a number of nanoseconds. It
// rejects small numbers, because they were probably intended to be in a different unit.
func etcdDuration(x *flag.Flag, nanoseconds string) (string, error) {
	if d, err := time.ParseDuration(nanoseconds + "ns"); err == nil && d >= time.Millisecond {
		return d.String(), nil
	}
	return "", fmt.Errorf("it needs a unit, as in %s%s", nanoseconds, "s")
}

// takesList reports whether the values of x are separated by commas on the command line.
func takesList(x *flag.Flag) bool {
	switch x.Value.(type) {
	case urls, list, members:
		return true
	}
	return false
}

func listOf(n *yaml.Node) (string, error) {
	var words []string
	for _, c := range n.Content {
		if c = settings.Resolve(c); c.Kind != yaml.ScalarNode {
			return "", fmt.Errorf("the element on line %d must be a single value", c.Line)
		}
		words = append(words, c.Value)
	}
	return strings.Join(words, ","), nil
}
