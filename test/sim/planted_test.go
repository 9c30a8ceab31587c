package sim

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	"leasehold.dev/test/tier"
)

var (
	plantFlag    = flag.String("plant", "", "TestPlanted: only those whose name matches")
	huntFlag     = flag.String("hunt", "", "look for a violation; write what was found to this file")
	partFlag     = flag.String("part", "0/1", "TestPlanted: only each nth, beginning with the ith")
	patienceFlag = flag.Duration("patience", 10*time.Minute, "TestPlanted: how long to look")
)

// huntSeeds is the maximum number of seeds in the hunt for a planted fault.
const huntSeeds = 1000

// panics lists the planted faults that make the code itself panic, with the expected texts. Any
// other panic may be a bug in the hunt.
var panics = map[string][]string{
	"acknowledge before sync": {
		"Was the raft log corrupted, truncated, or lost?", "sim: a snapshot is newer than the log",
	},
	"snapshot restore rewinds tokens":       {"lease: corrupt state: last token"},
	"entries applied again after a restart": {"is out of range [prevApplied("},
	"a batch splits a revision":             {"watch: reading the history made no progress"},
	// The entry's commands differ from the proposals.
	"results of another leader's entry": {"slice bounds out of range"},
	// When the deleted key's lease ends, the key is still attached to it.
	"a delete does not detach": {"internal/fsm.(*Machine).freeKeys("},
}

// seldom lists the planted faults that only one in several hundred runs exposes, each with a seed
// that exposed it. The hunt starts shortly before that seed.
var seldom = map[string]uint64{
	"a key that went while events were missing is forgotten":       380,
	"caches keep what a lesser permission does not allow":          275,
	"who hands over goes on until it is acknowledged":              1229,
	"a cache goes on when its lease, which had lapsed, is renewed": 465,
	"groups have the IDs of an earlier term":                       169,
	"leaves are lost with their round":                             514,
}

// edit replaces a text that occurs exactly once in its file.
type edit struct{ file, old, new string }

// planted is a fault planted in production code. The campaign must detect it, which shows that the
// checkers can fail.
//
// Some promises are protected by several independent checks, so removing one has no effect. Such a
// fault removes all of them.
type planted struct {
	name string
	// breaks names the promise that the fault violates or the trap that it reintroduces.
	breaks string
	edits  []edit
}

// found is the result of a hunt.
type found struct {
	ID        string  `json:"id"` // of the broken invariant; empty if no violation was found
	What      string  `json:"what"`
	Seed      uint64  `json:"seed"`
	Runs      int     `json:"runs"`
	Simulated float64 `json:"simulated"` // minutes
}

// hunter is a package whose TestHunt detects faults, with the faults to plant.
type hunter struct {
	dir  string
	list []planted
	only string // the value of TestHunt's flag
}

// plantedList lists the planted faults that the plain simulator must detect.
var plantedList = slices.Concat(
	plantedCore, plantedShell, plantedAgain, plantedLeases, plantedCaches, plantedWaits, plantedAccess,
	plantedCompare,
)

// hunters lists all hunters. The one in test/bubble runs complete members and clients.
var hunters = []hunter{
	{".", plantedList, ""},
	{".", plantedRelays, "relays"},
	{"../bubble", plantedBubble, ""},
}

// TestPlantedTexts checks that every planted fault applies: each text occurs exactly once in its
// file, and the result is valid Go.
func TestPlantedTexts(t *testing.T) {
	names := make(map[string]bool)
	for _, p := range slices.Concat(plantedList, plantedRelays, plantedBubble) {
		if names[p.name] {
			t.Errorf("two faults are called %q", p.name)
		}
		names[p.name] = true
		if _, err := mutate(p.edits); err != nil || len(p.edits) == 0 {
			t.Errorf("%s: %d edits, %v", p.name, len(p.edits), err)
		}
	}
	for _, name := range slices.Concat(
		slices.Collect(maps.Keys(panics)), slices.Collect(maps.Keys(seldom)),
	) {
		if !names[name] {
			t.Errorf("no fault is called %q", name)
		}
	}
}

// mutate returns the new content of the files that the edits change, keyed by path relative to the
// module's root.
func mutate(edits []edit) (map[string]string, error) {
	files := make(map[string]string)
	for _, e := range edits {
		if _, ok := files[e.file]; !ok {
			b, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			files[e.file] = string(b)
		}
		if n := strings.Count(files[e.file], e.old); n != 1 {
			return nil, fmt.Errorf("%s has %d times:\n%s", e.file, n, e.old)
		}
		at := strings.Index(files[e.file], e.old)
		files[e.file] = strings.Replace(files[e.file], e.old, e.new, 1)
		if err := isCode(files[e.file], at, at+len(e.new)); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", e.file, e.new, err)
		}
	}
	return files, nil
}

// isCode returns an error if a source is not valid Go, or if the text between two offsets has no
// effect.
func isCode(source string, from, to int) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, g := range file.Comments {
		for _, c := range g.List {
			at := files.Position(c.Pos()).Offset
			if from < to && at <= from && to <= at+len(c.Text) {
				return errors.New("it is in a comment")
			}
		}
	}
	return nil
}

// root is the path from this package to the module's root.
const root = "../.."

// TestHunt runs seeds until one breaks a promise. TestPlanted runs it in a binary with a planted
// fault.
func TestHunt(t *testing.T) {
	if *huntFlag == "" {
		t.Skip("for TestPlanted")
	}
	var f found
	for seed := *fromFlag; f.ID == "" && f.Runs < huntSeeds; seed++ {
		if !chosen(seed) {
			continue
		}
		t.Run("", func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, seed)
			o := Try(Options{Seed: seed})
			f.Runs++
			f.Simulated += float64(o.History.End) / float64(Minute)
			if o.Failed() {
				f.ID, f.What, f.Seed = o.Violations[0].ID, o.Violations[0].What, seed
			}
		})
	}
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*huntFlag, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPlanted checks that the campaign detects each planted fault. It compiles the fault into a
// binary with go test -overlay.
func TestPlanted(t *testing.T) {
	tier.Campaign(t)
	only, err := regexp.Compile(*plantFlag)
	if err != nil {
		t.Fatal(err)
	}
	part, parts := 0, 1
	if n, err := fmt.Sscanf(*partFlag, "%d/%d", &part, &parts); n != 2 || parts < 1 {
		t.Fatalf("-part=%s: %v", *partFlag, err)
	}
	i := 0
	for _, h := range hunters {
		dir := t.TempDir()
		for _, p := range h.list {
			if i++; !only.MatchString(p.name) || (i-1)%parts != part%parts {
				continue
			}
			t.Run(p.name, func(t *testing.T) {
				t.Parallel() // each compiler or hunt mostly uses one CPU
				binary := h.build(t, filepath.Join(dir, t.Name()), p.edits)
				f := h.hunt(t, binary, p)
				os.Remove(binary)
				judgeFound(t, p, f)
			})
		}
	}
}

// judgeFound checks that a fault was detected in the expected way.
func judgeFound(t *testing.T, p planted, f found) {
	t.Helper()
	switch texts := panics[p.name]; {
	case f.ID == "":
		t.Errorf("%s: lived through %d seeds, %.0f simulated minutes (-1: no end in %v)",
			p.name, f.Runs, f.Simulated, *patienceFlag)
		return
	case f.ID == "panic" && !slices.ContainsFunc(texts,
		func(text string) bool { return strings.Contains(f.What, text) }):
		t.Errorf("%s: a panic that is not how it shows, in seed %d: %s", p.name, f.Seed, f.What)
		return
	}
	t.Logf("| %s | %s | %s | %d | %.0f |", p.name, p.breaks, f.ID, f.Runs, f.Simulated)
	t.Logf("seed %d: %.300s", f.Seed, f.What)
}

// build compiles the package's tests with the edits applied.
func (h *hunter) build(t *testing.T, at string, edits []edit) string {
	t.Helper()
	files, err := mutate(edits)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	for name, text := range files {
		original, err := filepath.Abs(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		changed := filepath.Join(at, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[original] = changed
	}
	data, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(at, "overlay.json")
	if err := os.WriteFile(list, data, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(at, "sim.test")
	cmd := exec.Command("go", "test", "-vet=off", "-overlay", list, "-c",
		"-o", binary, h.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("does not compile: %v\n%s", err, out)
	}
	return binary
}

// hunt runs a binary until it finds a violation. If the binary exits without a result, that counts
// as a panic.
func (h *hunter) hunt(t *testing.T, binary string, p planted) found {
	t.Helper()
	out := filepath.Join(t.TempDir(), "found.json")
	ctx, cancel := context.WithTimeout(t.Context(), *patienceFlag)
	defer cancel()
	from := max(*fromFlag, seldom[p.name])
	cmd := exec.CommandContext(ctx, binary, "-test.run=^TestHunt$", "-test.timeout=0",
		"-hunt="+out, fmt.Sprintf("-from=%d", from))
	if h.only != "" {
		cmd.Args = append(cmd.Args, "-only="+h.only)
	}
	said, err := cmd.CombinedOutput()
	data, readErr := os.ReadFile(out)
	if readErr != nil {
		if ctx.Err() != nil {
			return found{Runs: -1} // no result in time
		}
		return found{ID: "panic", What: fmt.Sprintf("%v: %.4000s", err, said)}
	}
	var f found
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	return f
}
