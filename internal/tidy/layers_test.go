package tidy

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// house lists the rooms, a row a line, from the roof to the ground. A package
// may import packages of lower rows, and packages inside its own directory; it
// may not import upwards, nor its neighbours in the row. A package in none of
// the rooms is a finding: give it a row here, on purpose.
var house = [][]string{
	{"leaseholdtest"},
	{
		"cmd/leasehold", "examples", "bench", "packaging", "test", "tools", "internal/tidy",
		"conformance", "integrations",
	},
	{"internal/cli", "internal/serve"},
	{"internal/load", "internal/rewind", "internal/etcdsnapshot"},
	{"server", "internal/relay"},
	{"internal/api/etcd", "internal/api/native", "internal/api/web", "internal/api/ui"},
	{"internal/api/relayed"},
	{"internal/api"},
	{
		"client/lock", "client/queue", "client/contrib/pool", "client/members", "client/contrib/nodes",
		"client/cache",
	},
	{"client/internal/tries"},
	{"client"},
	{"client/internal/cachelink", "client/leases", "client/metrics"},
	{"client/store"},
	{"client/internal/message"},
	{"internal/transport", "internal/host", "internal/channel"},
	{"internal/shell", "internal/dump"},
	{"internal/replica"},
	{"internal/fsm"},
	{
		"internal/directory", "internal/holder", "internal/copies", "internal/replica/confirm",
		"internal/replica/delay", "internal/replica/silence",
	},
	{"lease", "internal/mvcc", "internal/watch"},
	{"test/crashfs"},
	{"internal/wheel", "internal/storage", "internal/binding"},
	{"plan", "internal/listen", "internal/backup", "internal/access"},
	{"internal/direct"},
	{
		"internal/version", "internal/encoding", "internal/keyrange",
		"internal/ticket", "internal/wire", "test/process", "test/corpus", "api",
		"internal/fault", "internal/login", "internal/table",
		"internal/audit", "internal/tracing", "internal/logger",
		"internal/settings", "internal/intercept", "internal/cause",
	},
	{"internal/subprocess", "internal/endpoint", "test/tier"},
}

// strangers lists what a package must not know although the row is lower. The
// key and the values are directories, with what is below them. Of internal the client knows
// what the holder of a lease and of a cache does.
var strangers = map[string][]string{
	"client": {
		"internal/transport", "internal/replica", "internal/fsm",
		"internal/directory", "internal/mvcc", "internal/watch", "internal/wheel",
		"internal/storage", "internal/listen", "internal/version",
	},
	"internal/cli":        {"server", "internal/replica", "internal/storage", "internal/fsm"},
	"internal/load":       {"server", "internal/replica", "internal/storage", "internal/fsm"},
	"bench":               {"server", "internal/replica", "internal/storage", "internal/fsm"},
	"bench/sidebyside":    {"internal"},
	"internal/watch":      {"internal/storage", "internal/wheel"},
	"internal/mvcc":       {"internal/storage", "internal/wheel"},
	"lease":               {"internal/storage"},
	"internal/fsm":        {"internal/storage"},
	"internal/api/etcd":   {"internal/transport", "internal/storage", "client"},
	"internal/api/native": {"internal/transport", "internal/storage", "client"},
	"internal/api/web":    {"internal/transport", "internal/storage"},
	"test":                {"internal"},
}

// whiteBox packages of test run parts of the product themselves. All others use what users have.
var whiteBox = []string{"test/sim", "test/bubble", "test/inprocess", "test/virtual", "test/crashfs"}

// wireless packages know nothing of wire formats: the packages of the API and
// the clients translate.
var wireless = []string{
	"internal/shell", "internal/replica", "internal/fsm", "internal/directory", "lease",
	"internal/mvcc", "internal/watch", "internal/wheel", "internal/storage", "internal/keyrange",
	"internal/ticket", "internal/access", "plan",
}

// pure packages are functions of their arguments. The values are the modules
// besides the standard library that each may import.
var pure = map[string][]string{
	"lease":              nil,
	"internal/wheel":     nil,
	"internal/mvcc":      {"github.com/tidwall/btree"},
	"internal/fsm":       {"github.com/tidwall/btree"},
	"internal/directory": {"github.com/tidwall/btree"},
	"internal/encoding":  nil,
	"internal/keyrange":  nil,
	"internal/access":    nil,
	"internal/ticket":    nil,
	"internal/holder":    nil,
	"internal/copies":    nil,
	"internal/shell":     {"go.etcd.io/raft/v3/raftpb"},
	"plan":               {"github.com/spf13/pflag"},

	"internal/replica/confirm": nil,
	"internal/replica/delay":   nil,
	"internal/replica/silence": nil,
}

// banned is what a pure package must not import directly, and what it does
// instead. (Only directly: a tree it stands on may well use a lock inside.)
var banned = map[string]string{
	"time":         "take an Instant or a TTL as an argument",
	"os":           "do I/O in storage or transport",
	"sync":         "one goroutine owns the state",
	"sync/atomic":  "one goroutine owns the state",
	"net":          "do I/O in transport",
	"net/http":     "do I/O in transport",
	"math/rand":    "take random numbers as arguments",
	"math/rand/v2": "take random numbers as arguments",
	"crypto/rand":  "take random numbers as arguments",
	"context":      "a pure call neither waits nor is cancelled",
}

// tolerated lifts a ban for one package.
var tolerated = map[string]string{
	// Readers take the current tree with one atomic load.
	"internal/mvcc": "sync/atomic",
	// A time.Duration is a value. The clocks of the package stay banned.
	"plan": "time",
}

// clocks are what a pure package that may name durations must not call.
var clocks = []string{
	"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc",
	"time.Tick", "time.NewTicker", "time.NewTimer",
}

// within says whether dir is top or below it.
func within(dir, top string) bool {
	return dir == top || strings.HasPrefix(dir, top+"/")
}

// room finds the room of a directory: the longest entry of the house that it
// is within. Row 0 is the roof; ok is false for a directory without a room.
func room(dir string) (name string, row int, ok bool) {
	for i, names := range house {
		for _, n := range names {
			if within(dir, n) && len(n) > len(name) {
				name, row, ok = n, i, true
			}
		}
	}
	return name, row, ok
}

// isMessages says whether a directory holds only generated messages. Anybody
// who may see wire formats may import those, from any row.
func isMessages(dir string) bool { return strings.HasSuffix(dir, "pb") || within(dir, "api") }

// mayImport says why dir from must not import dir to, or "".
func mayImport(from, to string) string {
	if isMessages(to) || within(to, from) {
		return ""
	}
	fromRoom, fromRow, ok := room(from)
	if !ok {
		return from + " has no room in the house: give it a row in internal/tidy"
	}
	toRoom, toRow, ok := room(to)
	if !ok {
		return to + " has no room in the house: give it a row in internal/tidy"
	}
	if fromRoom != toRoom && fromRow == toRow {
		return fmt.Sprintf("%s and %s are siblings and do not know each other", fromRoom, toRoom)
	}
	if toRow < fromRow {
		return fmt.Sprintf("arrows point downwards, and %s is above %s", toRoom, fromRoom)
	}
	for owner, list := range strangers {
		for _, s := range list {
			if within(from, owner) && within(to, s) && (owner != "test" || !oneOf(from, whiteBox)) {
				return fmt.Sprintf("%s knows nothing of %s", owner, s)
			}
		}
	}
	return ""
}

// checkLayers keeps the order of the house.
func checkLayers(s *source) []finding {
	var out []finding
	if _, _, ok := room(s.dir()); !ok && s.dir() != "." {
		out = append(out, s.report("layers", s.ast.Package, "",
			"%s has no room in the house: give it a row in internal/tidy", s.dir()))
	}
	if s.isTest() && !within(s.dir(), "test") {
		return out // a test may look wherever it needs to
	}
	for _, imp := range imports(s) {
		to, ours := strings.CutPrefix(imp.path, module+"/")
		why := ""
		switch {
		case ours:
			why = mayImport(s.dir(), to)
		case isWire(imp.path) && oneOf(s.dir(), wireless):
			why = "wire formats are for the packages of the API"
		}
		if why != "" {
			out = append(out, s.report("layers", imp.spec.Pos(), imp.path,
				"%s imports %s: %s", s.dir(), imp.path, why))
		}
	}
	return out
}

// checkPure keeps clocks, I/O, locks, chance and goroutines out of the pure
// packages.
func checkPure(s *source) []finding {
	allowed, isPure := pure[s.dir()]
	if !isPure || s.isTest() {
		return nil
	}
	var out []finding
	for _, imp := range imports(s) {
		why := banned[imp.path]
		if tolerated[s.dir()] == imp.path {
			why = ""
		}
		first, _, _ := strings.Cut(imp.path, "/")
		if strings.Contains(first, ".") && first != module && !oneOf(imp.path, allowed) {
			why = "a pure package stands on the standard library alone"
		}
		if why != "" {
			out = append(out, s.report("pure", imp.spec.Pos(), imp.path,
				"%s is pure and imports %s: %s", s.dir(), imp.path, why))
		}
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			out = append(out, s.report("pure", n.Pos(), "go",
				"%s is pure and starts a goroutine", s.dir()))
		case *ast.SelectorExpr:
			if name := selector(n); slices.Contains(clocks, name) {
				out = append(out, s.report("pure", n.Pos(), name,
					"%s is pure and uses %s: take an instant as an argument", s.dir(), name))
			}
		}
		return true
	})
	return out
}

// isWire says whether an import path is about wire formats of the API.
func isWire(p string) bool {
	return within(p, "google.golang.org/grpc") || within(p, "go.etcd.io/etcd") ||
		p == "net/http"
}

func oneOf(dir string, tops []string) bool {
	for _, t := range tops {
		if within(dir, t) {
			return true
		}
	}
	return false
}

type importSpec struct {
	spec *ast.ImportSpec
	path string
}

func imports(s *source) []importSpec {
	out := make([]importSpec, 0, len(s.ast.Imports))
	for _, spec := range s.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has refused it before
		}
		out = append(out, importSpec{spec, p})
	}
	return out
}
