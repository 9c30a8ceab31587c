package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"leasehold.dev/client/leases"
)

// TestShowCacheSlow: what names the lease of a slow cache is there to revoke it by, in every
// format.
func TestShowCacheSlow(t *testing.T) {
	e := &leases.Event{
		Kind: leases.CacheSlow, Waited: 1001 * time.Millisecond,
		Lease: leases.Info{ID: 0x1a, Name: "reader/1", Owner: "host-1"},
	}
	for _, c := range []struct {
		p    printer
		want []string
	}{
		{&simplePrinter{}, []string{
			`- cache slow 000000000000001a name "reader/1" owner "host-1" waited 1.001s`,
		}},
		{fieldsPrinter{}, []string{`"kind" : KIND_CACHE_SLOW`, `"waited_ms" : 1001`}},
		{jsonPrinter{}, []string{`"KIND_CACHE_SLOW"`, `"waited_ms":"1001"`, `"owner":"host-1"`}},
	} {
		var b bytes.Buffer
		if err := c.p.print(&b, showLeaseEvent(e)); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%T: %q does not say %q", c.p, b.String(), want)
			}
		}
		over := *e
		over.Kind = leases.CacheSlowEnded
		b.Reset()
		if err := c.p.print(&b, showLeaseEvent(&over)); err != nil {
			t.Fatal(err)
		}
		want := strings.NewReplacer(
			"cache slow", "cache slow ended", "CACHE_SLOW", "CACHE_SLOW_ENDED",
		).Replace(c.want[0])
		if !strings.Contains(b.String(), want) {
			t.Errorf("%T: %q does not say %q", c.p, b.String(), want)
		}
	}
}
