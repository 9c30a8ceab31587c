package main

import (
	"bytes"
	"log"
	"strings"
	"testing"
	"time"

	"leasehold.dev/test/inprocess"
)

// TestDHCP runs the example. Hosts must keep their addresses when a server dies, and the address of
// a silent host must become free.
func TestDHCP(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		member := inprocess.Run(t, 1)[0]
		var out bytes.Buffer
		d := demo{
			cluster: inprocess.ClientConfig(t, member), hosts: 4, ttl: time.Second,
			log: log.New(&out, "", 0),
		}
		if err := d.run(t.Context()); err != nil {
			t.Errorf("%v after\n%s", err, out.String())
		}
		if !strings.Contains(out.String(), "is free again\n3 hosts have an address\n") {
			t.Errorf("it says %q", out.String())
		}
	})
}
