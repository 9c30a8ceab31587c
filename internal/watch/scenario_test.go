package watch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"leasehold.dev/internal/keyrange"
)

// TestScenarios runs the scripts in testdata against a store, a hub and streams.
//
//	put k=a,b        commit one revision with these puts, and deletes given by del=; also
//	                 publish it, unless "silent" is given
//	publish          publish the silent revisions; "restore" skips them instead
//	distribute       distribute published events, as Run does
//	watch s= k= ...  on stream s: end=, from=, id=, no-put, no-delete, tag=
//	cancel s= id=    reject s=    progress s= [id=]    close s=
//	poll s= [n=]     print all batches of the stream, or n of them
//	compact rev=
//	stats
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		sc := &scenario{st: newStore(tight), streams: map[string]*Stream[*event]{}}
		datadriven.RunTest(t, path, sc.run)
	})
}

type scenario struct {
	st      *store
	silent  []*event
	streams map[string]*Stream[*event]
}

func (sc *scenario) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	text := func(key string) (v string) { d.MaybeScanArgs(t, key, &v); return v }
	number := func(key string) (v int64) { d.MaybeScanArgs(t, key, &v); return v }
	s := sc.stream(text("s"))
	switch d.Cmd {
	case "put":
		return sc.put(d)
	case "publish", "restore":
		rev := sc.st.cur.Load().rev
		if d.Cmd == "publish" {
			sc.st.hub.Publish(rev, sc.silent)
		} else {
			sc.st.hub.Restore(rev)
		}
		sc.silent = nil
	case "distribute":
		sc.st.hub.Distribute()
	case "compact":
		sc.st.compact(number("rev"))
	case "watch":
		r := Request{Key: text("k"), End: text("end"), From: number("from"), ID: number("id")}
		r.End = strings.ReplaceAll(r.End, "infinity", keyrange.NoEnd)
		r.NoPut, r.NoDelete = d.HasArg("no-put"), d.HasArg("no-delete")
		if tag := text("tag"); tag != "" {
			r.Tag = tag
		}
		id, err := s.Watch(r)
		if err != nil {
			s.Reject(err)
			return fmt.Sprintf("error: %v\n", err)
		}
		return fmt.Sprintf("watcher %d\n", id)
	case "cancel":
		if err := s.Cancel(number("id")); err != nil {
			return fmt.Sprintf("error: %v\n", err)
		}
	case "progress":
		id := AllWatchers
		d.MaybeScanArgs(t, "id", &id)
		s.RequestProgress(id)
	case "close":
		s.Close()
		delete(sc.streams, text("s"))
	case "poll":
		return poll(s, number("n"))
	case "stats":
		return fmt.Sprintf("%+v\n", sc.st.hub.Stats())
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	return ""
}

func (sc *scenario) stream(name string) *Stream[*event] {
	if name != "" && sc.streams[name] == nil {
		sc.streams[name] = sc.st.hub.NewStream()
	}
	return sc.streams[name]
}

func (sc *scenario) put(d *datadriven.TestData) string {
	var evs []*event
	for _, arg := range d.CmdArgs {
		for _, k := range arg.Vals {
			switch arg.Key {
			case "k":
				evs = append(evs, put(k))
			case "del":
				evs = append(evs, del(k))
			}
		}
	}
	rev := sc.st.commit(evs...)
	if d.HasArg("silent") {
		sc.silent = append(sc.silent, evs...)
	} else {
		sc.st.hub.Publish(rev, evs)
	}
	return fmt.Sprintf("revision %d\n", rev)
}

func poll(s *Stream[*event], n int64) string {
	var out strings.Builder
	for i := int64(0); n == 0 || i < n; i++ {
		b, ok := s.Poll()
		if !ok {
			break
		}
		fmt.Fprintf(&out, "%d %v rev=%d", b.ID, b.Kind, b.Revision)
		if b.Tag != nil {
			fmt.Fprintf(&out, " tag=%v", b.Tag)
		}
		if b.Err != nil {
			fmt.Fprintf(&out, " error=%q", b.Err)
		}
		if b.Compacted != 0 {
			fmt.Fprintf(&out, " compacted=%d", b.Compacted)
		}
		for _, e := range b.Events {
			fmt.Fprintf(&out, " %v", e)
		}
		out.WriteByte('\n')
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}
