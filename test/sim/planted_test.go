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

// huntSeeds is how many seeds a planted fault may live through.
const huntSeeds = 1000

// panics are the planted faults that show by a panic of the code itself, and what it
// must say: one of these texts. A panic of any other fault, or with another text, is not a find: it
// may be the hunt that is broken.
var panics = map[string][]string{
	"acknowledge before sync": {
		"Was the raft log corrupted, truncated, or lost?", "sim: a snapshot is newer than the log",
	},
	"snapshot restore rewinds tokens":       {"lease: corrupt state: last token"},
	"entries applied again after a restart": {"is out of range [prevApplied("},
	"a batch splits a revision":             {"watch: history makes no progress"},
	// An entry with other commands than those of the proposals.
	"results of another leader's entry": {"slice bounds out of range"},
	// The lease of a deleted key ends, and would leave the key as it is.
	"a delete does not detach": {"internal/fsm.(*Machine).freeKeys("},
}

// seldom are the planted faults of which only one run in some hundreds shows anything, each with a
// seed that did. The hunt for it begins a little before, where it would come anyway; when the world
// changes that is a place like any other.
var seldom = map[string]uint64{
	"a key that went while events were missing is forgotten":       380,
	"caches keep what a lesser permission does not allow":          275,
	"who hands over goes on until it is acknowledged":              1229,
	"a cache goes on when its lease, which had lapsed, is renewed": 465,
}

// edit replaces one text, which occurs once in its file, by another.
type edit struct{ file, old, new string }

// planted is one fault that is put into the code of production. The campaign must find it:
// that is how we know that the checkers can fail.
//
// Some promises are kept by several walls, one behind the other, and with one
// wall gone nothing happens. Such a fault takes all walls but those of others away.
type planted struct {
	name string
	// breaks is the promise or the trap that it brings back.
	breaks string
	edits  []edit
}

// found is what a hunt brought home.
type found struct {
	ID        string  `json:"id"` // of the broken invariant; empty if nothing was found
	What      string  `json:"what"`
	Seed      uint64  `json:"seed"`
	Runs      int     `json:"runs"`
	Simulated float64 `json:"simulated"` // minutes
}

// hunter is a package whose TestHunt looks for faults, and what is planted for it.
type hunter struct {
	dir  string
	list []planted
	only string // the flag of TestHunt
}

// plantedList is everything that is planted.
var plantedList = slices.Concat(
	plantedCore, plantedShell, plantedAgain, plantedLeases, plantedCaches, plantedWaits, plantedAccess,
	plantedCompare,
)

// hunters are all that look for faults. test/bubble has whole members and clients.
var hunters = []hunter{
	{".", plantedList, ""},
	{".", plantedRelays, "relays"},
	{"../bubble", plantedBubble, ""},
}

// TestPlantedTexts: every planted fault is one that can be planted: each text
// occurs once in its file, and what comes of it is Go.
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

// mutate returns the files that edits change, as they are then, by their path from
// the root of the module.
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

// isCode says why a source is not Go, or why what it has from one place to another changes nothing.
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

// root is the module's directory, from that of this package.
const root = "../.."

// TestHunt runs seeds until one breaks a promise. TestPlanted runs it in a binary
// that has a fault.
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

// TestPlanted plants each fault into the code (the sources stay as they are: go test
// -overlay compiles the changed copies), and has the campaign look for it.
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
				t.Parallel() // a compiler or a hunt is on one processor for most of its time
				binary := h.build(t, filepath.Join(dir, t.Name()), p.edits)
				f := h.hunt(t, binary, p)
				os.Remove(binary)
				judgeFound(t, p, f)
			})
		}
	}
}

// judgeFound says whether a fault was found as one is to be found.
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

// build compiles the package's tests with the edits.
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

// hunt has a binary look for a violation. One that dies without saying what it found
// is taken for a panic.
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
			return found{Runs: -1} // no verdict in time
		}
		return found{ID: "panic", What: fmt.Sprintf("%v: %.4000s", err, said)}
	}
	var f found
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	return f
}
