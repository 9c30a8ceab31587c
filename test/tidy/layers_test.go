package tidy

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// layers lists the packages from top to bottom, one layer per element. A package may import
// packages in lower layers and packages inside its own directory, but none in higher layers or its
// own layer.
var layers = [][]string{
	{"leaseholdtest"},
	{
		"cmd/leasehold", "examples", "bench", "packaging", "test", "tools", "conformance",
		"integrations",
	},
	{"internal/cli", "internal/serve"},
	{"internal/load", "internal/rewind"},
	{"server", "internal/relay"},
	{"internal/member"},
	{"internal/api/etcd", "internal/api/native", "internal/api/web", "internal/api/ui"},
	{"internal/api/relayed", "internal/audit"},
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
		"internal/directory", "internal/holder", "internal/copies", "internal/replica/silence",
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
		"internal/tracing", "internal/logger",
		"internal/settings", "internal/intercept", "internal/cause",
	},
	{"internal/subprocess", "internal/endpoint", "internal/backoff", "test/tier"},
}

// strangers lists imports that are forbidden even though they are in a lower layer. Keys and values
// are directories, including everything below them, or import paths of other modules.
var strangers = map[string][]string{
	// A client program must not link the server. From internal, the client imports only the code
	// for holders of leases and for caches.
	"client": {
		"internal/transport", "internal/replica", "internal/fsm",
		"internal/directory", "internal/mvcc", "internal/watch", "internal/wheel",
		"internal/storage", "internal/listen", "internal/version",
	},
	"internal/cli":        {"server", "internal/replica", "internal/storage", "internal/fsm"},
	"internal/load":       {"server", "internal/replica", "internal/storage", "internal/fsm"},
	"bench":               {"server", "internal/replica", "internal/storage", "internal/fsm"},
	"bench/sidebyside":    {"internal"},
	"internal/api/etcd":   {"internal/transport", "internal/storage", "client"},
	"internal/api/native": {"internal/transport", "internal/storage", "client"},
	"internal/api/web":    {"internal/transport", "internal/storage"},
	"test":                {"internal"},
	// The API and client packages translate between wire formats and these packages.
	"internal/shell":     wire,
	"internal/replica":   wire,
	"internal/access":    wire,
	"internal/storage":   wire,
	"internal/watch":     append(wire, "internal/storage", "internal/wheel"),
	"internal/mvcc":      append(wire, "internal/storage", "internal/wheel"),
	"lease":              append(wire, "internal/storage"),
	"internal/fsm":       append(wire, "internal/storage"),
	"internal/directory": wire,
	"internal/wheel":     wire,
	"internal/keyrange":  wire,
	"plan":               wire,
}

var wire = []string{"google.golang.org/grpc", "go.etcd.io/etcd", "net/http"}

// whiteBox lists the test packages that run parts of the product directly or help to test them. The
// other test packages use only the public API.
var whiteBox = []string{
	"test/sim", "test/bubble", "test/inprocess", "test/virtual", "test/crashfs",
	"test/apptest", "test/etcdtest", "test/nativetest",
}

// pure lists packages whose results depend only on their arguments, so that the simulator can
// repeat a run. The values are the modules that each may import in addition to the standard
// library.
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
	"internal/replica":   {"go.etcd.io/raft/v3", "google.golang.org/protobuf"},
	"internal/shell":     {"go.etcd.io/raft/v3/raftpb"},
	"plan":               {"github.com/spf13/pflag"},

	"internal/replica/silence": nil,
}

// banned lists what a pure package must not import. A tree used by such a package may contain a
// lock.
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
	"context":      "a pure call neither blocks nor can be canceled",
}

// tolerated lifts one ban for a package.
var tolerated = map[string]string{
	"internal/mvcc": "sync/atomic", // readers load the current tree atomically
	"plan":          "time",        // a time.Duration is a value; clocks stay banned
}

// clocks lists functions that no pure package may call, even if it may import package time.
var clocks = []string{
	"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc",
	"time.Tick", "time.NewTicker", "time.NewTimer",
}

// within reports whether dir equals top or is below it.
func within(dir, top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }

func withinAny(dir string, tops []string) bool {
	return slices.ContainsFunc(tops, func(top string) bool { return within(dir, top) })
}

// layer returns the longest entry of layers that contains a directory, and the entry's row.
func layer(dir string) (name string, row int, ok bool) {
	for i, names := range layers {
		for _, n := range names {
			if within(dir, n) && len(n) > len(name) {
				name, row, ok = n, i, true
			}
		}
	}
	return name, row, ok
}

// forbidden returns why the package in directory from must not import path, or "" if it may.
func forbidden(from, path string) string {
	to, ours := strings.CutPrefix(path, module+"/")
	if strings.HasSuffix(to, "pb") || ours && (within(to, "api") || within(to, from)) {
		return "" // any package may import generated messages
	}
	if ours {
		fromLayer, fromRow, _ := layer(from)
		toLayer, toRow, ok := layer(to)
		switch {
		case !ok:
			return to + " is in no layer"
		case fromLayer != toLayer && fromRow == toRow:
			return fmt.Sprintf("%s and %s are in the same layer", fromLayer, toLayer)
		case toRow < fromRow:
			return fmt.Sprintf("%s is in a higher layer than %s", toLayer, fromLayer)
		}
	}
	for owner, list := range strangers {
		if !within(from, owner) || owner == "test" && withinAny(from, whiteBox) {
			continue
		}
		if withinAny(to, list) {
			return owner + " must not know it"
		}
	}
	return ""
}

func checkLayers(s *source) (out []finding) {
	if _, _, ok := layer(s.dir()); !ok && s.dir() != "." {
		out = append(out, s.report(s.ast.Package, "%s is in no layer: add it to layers", s.dir()))
	}
	if s.isTest() && !within(s.dir(), "test") {
		return out
	}
	for _, imp := range s.ast.Imports {
		path := strings.Trim(imp.Path.Value, `"`)
		if why := forbidden(s.dir(), path); why != "" {
			out = append(out, s.report(imp.Pos(), "%s imports %s: %s", s.dir(), path, why))
		}
	}
	return out
}

// checkPure finds uses of clocks, I/O, locks, random numbers and goroutines in pure packages.
func checkPure(s *source) (out []finding) {
	modules, isPure := pure[s.dir()]
	if !isPure || s.isTest() {
		return nil
	}
	for _, imp := range s.ast.Imports {
		path := strings.Trim(imp.Path.Value, `"`)
		first, _, _ := strings.Cut(path, "/")
		if why := banned[path]; why != "" && tolerated[s.dir()] != path {
			out = append(out, s.report(imp.Pos(), "%s is pure and imports %s: %s", s.dir(), path, why))
		} else if strings.Contains(first, ".") && first != module && !withinAny(path, modules) {
			out = append(out, s.report(imp.Pos(), "%s is pure and imports module %s", s.dir(), path))
		}
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			out = append(out, s.report(n.Pos(), "%s is pure and starts a goroutine", s.dir()))
		case *ast.SelectorExpr:
			if name := selector(n); slices.Contains(clocks, name) {
				out = append(out, s.report(n.Pos(), "%s is pure and calls %s", s.dir(), name))
			}
		}
		return true
	})
	return out
}
