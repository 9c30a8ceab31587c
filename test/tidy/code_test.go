package tidy

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// rules maps names to the rules that check one file at a time.
var rules = map[string]func(*source) []finding{
	"layers": checkLayers, "pure": checkPure, "line length": checkLines,
	"documented names": checkDocs, "sleep": checkSleep,
}

func TestRules(t *testing.T) {
	for _, s := range load(t) {
		for rule, check := range rules {
			for _, f := range check(s) {
				t.Errorf("%v [%s]", f, rule)
			}
		}
	}
}

const maxLineRunes = 100

func checkLines(s *source) (out []finding) {
	if s.isTest() {
		return nil // tables may be wide
	}
	n := 0
	for line := range strings.Lines(string(s.text)) {
		n++
		if utf8.RuneCountInString(strings.TrimSpace(line)) > maxLineRunes &&
			!strings.HasPrefix(line, "//go:") {
			out = append(out, finding{s.path, n, "the line is longer than 100 columns"})
		}
	}
	return out
}

// checkDocs finds exported names without a comment. Names declared in a group may share one.
func checkDocs(s *source) (out []finding) {
	if s.isTest() {
		return nil
	}
	missing := func(name *ast.Ident) {
		if name.IsExported() {
			out = append(out, s.report(name.Pos(), "%s is exported and has no comment", name.Name))
		}
	}
	for _, d := range s.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if r := receiver(d); d.Doc == nil && (r == "" || ast.IsExported(r)) {
				missing(d.Name)
			}
		case *ast.GenDecl:
			if d.Doc != nil {
				continue
			}
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Doc == nil && spec.Comment == nil {
						missing(spec.Name)
					}
				case *ast.ValueSpec:
					if spec.Doc == nil && spec.Comment == nil {
						missing(spec.Names[0])
					}
				}
			}
		}
	}
	return out
}

// receiver returns the name of a method's type, or "" for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	return localType(f.Recv.List[0].Type)
}

// localType returns the name of a type of the same package, or of what a pointer to such a type
// points to. For any other type, it returns "".
func localType(t ast.Expr) string {
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// checkSleep finds tests that sleep in real time.
func checkSleep(s *source) (out []finding) {
	if !s.isTest() {
		return nil
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch selector(call.Fun) {
		case "synctest.Test", "inprocess.Bubble", "virtual.Test":
			return false
		case "time.Sleep":
			out = append(out, s.report(call.Pos(),
				"the test sleeps in real time: use testing/synctest, or wait for the event"))
		}
		return true
	})
	return out
}

// selector returns an expression of the form package.Name as text, or "" for any other expression.
func selector(e ast.Expr) string {
	if sel, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := sel.X.(*ast.Ident); ok {
			return x.Name + "." + sel.Sel.Name
		}
	}
	return ""
}

// maxFields and maxMethods limit the size of a type to what a reader can remember. The fields and
// methods of an embedded type of the same package count, even if a pointer is embedded, because
// embedding does not make a type smaller. If the embedded type is itself in large, it counts as one
// field, so that its size is reported once and not for each type that embeds it.
const (
	maxFields  = 24
	maxMethods = 40
)

// large lists the types that exceed the limits, with their numbers of fields and methods. These may
// only shrink. A configuration may be as long as it needs to be, because its options are
// independent.
var large = map[string][2]int{
	"client.Client":                 {0, 43},
	"client.link":                   {25, 0},
	"client/lock.Leading":           {0, 42}, // a Held and what only a leader can do
	"conformance.worker":            {26, 0}, // a client of the mixed campaign, with that campaign's state
	"conformance/drivers/go.driver": {0, 44},
	"internal/access.State":         {0, 48},
	"internal/api/native.leases":    {0, 50},
	"internal/api/native.stream":    {34, 89}, // performs requests with the methods of the store
	"internal/cli/app.App":          {0, 47},  // embeds Process, its access to the operating system
	"internal/directory.Directory":  {0, 54},
	"internal/directory.cache":      {29, 0},
	"internal/fsm.Machine":          {0, 123},
	"internal/fsm.decoder":          {0, 57},
	"internal/holder.Set":           {0, 44},
	"internal/mvcc.Store":           {0, 49},  // reads with the methods that it shares with its views
	"internal/replica.Replica":      {0, 75},  // embeds local, which its parts share
	"internal/storage.Disk":         {31, 67}, // embeds the state in memory and the end of the log
	"lease.Lessor":                  {0, 79},
	"server.node":                   {34, 81}, // embeds the core to answer calls from its state
	"test/sim.Op":                   {29, 0},
	"test/sim.Profile":              {37, 0},
	"test/sim.Trial":                {29, 0}, // a run's Result and its Report
	"test/sim.facts":                {0, 108},
	"test/sim.incarnation":          {26, 0},
	"test/sim.injector":             {0, 52},
	"test/sim.process":              {0, 46}, // embeds the streams that its clients have open
	"test/sim.thread":               {0, 84},
	"test/sim.world":                {0, 46},
}

func TestTypeSizes(t *testing.T) {
	for name, size := range typeSizes(load(t)) {
		fields, methods := max(maxFields, large[name][0]), max(maxMethods, large[name][1])
		if size[0] > fields || size[1] > methods {
			t.Errorf("%s has %d fields (at most %d) and %d methods (at most %d): divide it by subject",
				name, size[0], fields, size[1], methods)
		}
	}
}

// typeSizes returns the numbers of fields and methods of each type, keyed by directory.Name.
func typeSizes(files []*source) map[string][2]int {
	fields, methods := map[string][]*ast.Field{}, map[string][]string{} // without embedding
	sizes := map[string][2]int{}
	for _, s := range files {
		if s.isTest() {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					name := s.dir() + "." + receiver(n)
					methods[name] = append(methods[name], n.Name.Name)
					sizes[name] = [2]int{}
				}
			case *ast.TypeSpec:
				if st, ok := n.Type.(*ast.StructType); ok {
					name := s.dir() + "." + n.Name.Name
					fields[name] = st.Fields.List
					sizes[name] = [2]int{}
				}
			}
			return true
		})
	}
	for name := range sizes {
		dir := name[:strings.LastIndexByte(name, '.')]
		count, methodNames := 0, map[string]bool{} // a promoted method may be hidden by another
		types := []string{name}                    // and all types that it embeds
		for i := 0; i < len(types); i++ {
			for _, m := range methods[types[i]] {
				methodNames[m] = true
			}
			for _, f := range fields[types[i]] {
				if len(f.Names) > 0 {
					count += len(f.Names)
					continue
				}
				embedded := dir + "." + localType(f.Type)
				_, isStruct := fields[embedded]
				_, isLarge := large[embedded]
				if !isStruct || isLarge {
					count++
				}
				if !isLarge && !slices.Contains(types, embedded) {
					types = append(types, embedded)
				}
			}
		}
		sizes[name] = [2]int{count, len(methodNames)}
	}
	return sizes
}

func TestPackageComments(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range load(t) {
		documented[s.dir()] = documented[s.dir()] || s.ast.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}
