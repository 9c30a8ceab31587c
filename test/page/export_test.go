package page

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
)

// saved clicks a button that saves a file, waits for the download, and returns the file's name and
// content.
func (p *tab) saved(button string) (name string, text []byte) {
	p.Helper()
	dir := p.TempDir()
	begun, done := make(chan string, 1), make(chan string, 1)
	ctx, end := context.WithCancel(p.ctx)
	defer end()
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *cdpbrowser.EventDownloadWillBegin:
			begun <- e.SuggestedFilename
		case *cdpbrowser.EventDownloadProgress:
			if e.State == cdpbrowser.DownloadProgressStateCompleted {
				done <- e.GUID
			}
		}
	})
	p.run(cdpbrowser.SetDownloadBehavior(cdpbrowser.SetDownloadBehaviorBehaviorAllowAndName).
		WithDownloadPath(dir).WithEventsEnabled(true))
	p.click("button", button)
	file, late := "", time.After(*patience)
	select {
	case name = <-begun:
	case <-late:
		p.Fatalf("%s: nothing is saved", button)
	}
	select {
	case id := <-done:
		file = filepath.Join(dir, id)
	case <-late:
		p.Fatalf("%s: %s does not come to its end", button, name)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		p.Fatal(err)
	}
	return name, text
}

// TestSavedEvents checks that the displayed events are saved as lines of JSON, oldest first. Events
// that the page received live include the time of day.
func TestSavedEvents(t *testing.T) {
	m := cluster(t, 1)[0]
	const hostile = "<b>\"\n\u2028"
	const first = "20"
	m.grant(map[string]any{"id": first, "ttl_ms": 600_000, "name": hostile + "1"})
	second := m.grant(map[string]any{"ttl_ms": 600_000, "name": hostile + "2"})
	p := open(t, m.url+"/ui/#/events")
	p.counts(2)
	m.call("/v1/leases/revoke", map[string]any{"leases": []any{map[string]any{"id": second}}})
	p.counts(3)
	check := func(want ...string) {
		t.Helper()
		name, text := p.saved("Save as JSON lines")
		if name != "events.jsonl" {
			t.Errorf("the file is called %q", name)
		}
		var got []string
		for line := range strings.Lines(string(text)) {
			var e struct {
				Seq, Kind string
				Lease     struct{ ID, Name string }
				ToldAt    time.Time `json:"told_at"`
			}
			d := json.NewDecoder(strings.NewReader(line))
			if err := d.Decode(&e); err != nil {
				t.Fatalf("%v: %q", err, line)
			}
			got = append(got, fmt.Sprint(e.Seq, " ", e.Kind, " ", e.Lease.ID, e.Lease.Name, " ",
				!e.ToldAt.IsZero()))
		}
		if !slices.Equal(got, want) {
			t.Errorf("it saves %q, not %q", got, want)
		}
	}
	one := "1 KIND_GRANTED " + first + hostile + "1 false"
	two := "2 KIND_GRANTED " + second + hostile + "2 false"
	three := "3 KIND_REVOKED " + second + hostile + "2 true"
	check(one, two, three)
	p.fill("select", "KIND_REVOKED")
	p.counts(1)
	check(three)
	p.fill("select", "")
	p.fill("input[type=search]", hex(t, first))
	p.counts(1)
	check(one)
}
