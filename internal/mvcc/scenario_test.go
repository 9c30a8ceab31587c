package mvcc

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios runs the scripts in testdata, which document the semantics of etcd's data model.
// Run with -rewrite to update them.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		r := &runner{s: New(), views: make(map[string]*View)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			r.out.Reset()
			if err := r.run(d); err != nil {
				r.printf("error: %v\n", err)
			}
			checkStore(t, r.s)
			if r.out.Len() == 0 {
				return "ok\n"
			}
			return r.out.String()
		})
	})
}

// runner executes the commands of a scenario. Plain arguments are the key and end of a range, where
// "*" is the end of the key space. Arguments of the form name=value are options.
type runner struct {
	s     *Store
	views map[string]*View
	out   strings.Builder
}

func (r *runner) printf(format string, args ...any) { fmt.Fprintf(&r.out, format, args...) }

// words returns the plain arguments, padded to at least two, and the options.
func words(d *datadriven.TestData) (w []string, options map[string]string) {
	options = make(map[string]string)
	for _, a := range d.CmdArgs {
		if len(a.Vals) > 0 {
			options[a.Key] = a.Vals[0]
			continue
		}
		w = append(w, a.Key)
	}
	return append(w, "", ""), options
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil && s != "" {
		panic(err)
	}
	return n
}

func endOf(s string) string {
	if s == "*" {
		return "\x00"
	}
	return s
}

func (r *runner) view(options map[string]string) *View {
	if v := r.views[options["view"]]; v != nil {
		return v
	}
	return r.s.View()
}

func (r *runner) run(d *datadriven.TestData) error {
	w, o := words(d)
	switch d.Cmd {
	case "new":
		r.s, r.views = New(), make(map[string]*View)
		r.printf("revision %d\n", r.s.Revision())
	case "txn":
		r.txn(d.Input)
	case "range":
		return r.rangeKeys(r.view(o).Range, w[0], endOf(w[1]), o)
	case "ascend":
		v, rev := r.view(o), number(o["rev"])
		if err := v.Check(rev); err != nil {
			return err
		}
		for kv := range v.Ascend(w[0], endOf(w[1]), rev) {
			r.kv("", kv)
		}
	case "view":
		r.views[w[0]] = r.s.View()
	case "compact":
		return r.s.Compact(number(w[0]))
	case "scrub":
		for r.s.Scrub(10) {
		}
		r.printf("%d records kept\n", r.s.records())
	case "events":
		return r.events(r.view(o), w, o)
	case "visits":
		opts := rangeOptions(o)
		r.printf("%d keys, %d comparisons each\n",
			r.view(o).Visits(w[0], endOf(w[1]), opts), opts.Comparisons())
	case "size":
		r.printf("%d bytes\n", r.s.Size())
	case "clear":
		more := r.s.ClearDeleted(int(number(w[0])))
		r.printf("%d deleted keys are known, more %v\n", r.s.Deleted(), more)
	case "records":
		for rec := range r.view(o).Records() {
			r.printf("%d.%d ", rec.ModRevision, rec.Sub)
			r.change(rec.Tombstone, &rec.KeyValue)
		}
	case "restore":
		v := r.s.View()
		s, err := Restore(v.Revision(), v.Compacted(), v.Records())
		if err != nil {
			return err
		}
		r.s = s
	case "state":
		r.printf("revision %d, compacted %d, %d keys\n", r.s.Revision(), r.s.Compacted(), r.s.len())
	default:
		return fmt.Errorf("unknown command %q", d.Cmd)
	}
	return nil
}

// valueOf expands a value such as 180*x, which means x repeated 180 times.
func valueOf(s string) []byte {
	n, of, ok := strings.Cut(s, "*")
	if !ok {
		return []byte(s)
	}
	return bytes.Repeat([]byte(of), int(number(n)))
}

// written is the inverse of valueOf.
func written(v []byte) string {
	if len(v) < 100 {
		return string(v)
	}
	return fmt.Sprintf("%d*%c", len(v), v[0])
}

// txn runs the lines of a transaction: put KEY VALUE [LEASE], del KEY [END], get KEY, or range KEY
// END.
func (r *runner) txn(input string) {
	tx := r.s.Begin()
	for line := range strings.Lines(input) {
		f := append(strings.Fields(line), "", "", "")
		switch f[0] {
		case "put":
			r.kv("  before: ", tx.Put(f[1], valueOf(f[2]), number(f[3])))
		case "del":
			for _, kv := range tx.DeleteRange(f[1], endOf(f[2])) {
				r.kv("  deleted: ", kv)
			}
		case "get":
			r.kv("  got: ", tx.Get(f[1]))
		case "range":
			o := map[string]string{"rev": f[3]}
			if err := r.rangeKeys(tx.Range, f[1], endOf(f[2]), o); err != nil {
				r.printf("error: %v\n", err)
			}
		}
	}
	rev, events := tx.End()
	r.printf("revision %d, %d changes\n", rev, len(events))
}

type rangeFunc func(key, end string, o RangeOptions) (RangeResult, error)

func rangeOptions(o map[string]string) RangeOptions {
	sorts := map[string]SortBy{
		"": None, "key": ByKey, "version": ByVersion, "create": ByCreate, "mod": ByMod,
		"value": ByValue,
	}
	return RangeOptions{
		Revision: number(o["rev"]), Limit: number(o["limit"]),
		MinModRevision: number(o["min-mod"]), MaxModRevision: number(o["max-mod"]),
		MinCreateRevision: number(o["min-create"]), MaxCreateRevision: number(o["max-create"]),
		SortBy: sorts[o["sort"]], Descend: o["order"] == "descend",
		CountOnly: o["count"] == "only",
	}
}

func (r *runner) rangeKeys(fn rangeFunc, key, end string, o map[string]string) error {
	res, err := fn(key, end, rangeOptions(o))
	if err != nil {
		return err
	}
	for _, kv := range res.KVs {
		r.kv("", kv)
	}
	r.printf("count %d, more %v, revision %d\n", res.Count, res.More, res.Revision)
	return nil
}

func (r *runner) kv(prefix string, kv *KeyValue) {
	if kv == nil {
		r.printf("%snone\n", prefix)
		return
	}
	r.printf("%s%s=%s created %d, modified %d, version %d", prefix,
		kv.Key, written(kv.Value), kv.CreateRevision, kv.ModRevision, kv.Version)
	if kv.Lease != 0 {
		r.printf(", lease %d", kv.Lease)
	}
	r.printf("\n")
}

func (r *runner) change(del bool, kv *KeyValue) {
	if del {
		r.printf("delete %s\n", kv.Key)
		return
	}
	r.kv("put ", kv)
}

func (r *runner) events(v *View, w []string, o map[string]string) error {
	from, limit := number(o["from"]), int(number(o["max"]))
	var events []Event
	var next int64
	var err error
	if w[0] == "" {
		events, next, err = v.Events(from, limit)
	} else {
		events, next, err = v.EventsIn(w[0], endOf(w[1]), from, limit)
	}
	if err != nil {
		return err
	}
	for _, ev := range events {
		r.printf("%d.%d ", ev.KV.ModRevision, ev.Sub)
		r.change(ev.Delete, ev.KV)
		if ev.Prev != nil {
			r.kv("    before: ", ev.Prev)
		}
	}
	r.printf("next %d\n", next)
	return nil
}
