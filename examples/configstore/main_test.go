package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"leasehold.dev/test/inprocess"
)

// TestConfigstore runs the example with a small number of readers.
func TestConfigstore(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		member := inprocess.Run(t, 1)[0]
		var out bytes.Buffer
		d := demo{
			cluster: inprocess.ClientConfig(t, member), readers: 20, changes: 10,
			pause: time.Millisecond, out: &out,
		}
		if err := d.run(t.Context()); err != nil {
			t.Error(err)
		}
		if !strings.HasSuffix(out.String(), "none was stale\n") {
			t.Errorf("it says %q", out.String())
		}
	})
}
