package main

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold.dev/server"
)

// TestConfigstore runs the example with few readers.
func TestConfigstore(t *testing.T) {
	dir, err := os.MkdirTemp("", "lh") // a short name, for a socket's has a bound
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := func(name string) []url.URL {
		return []url.URL{{Scheme: "unix", Path: filepath.Join(dir, name)}}
	}
	cfg := server.DefaultConfig()
	cfg.DataDir = filepath.Join(dir, "data")
	cfg.URLs.ListenClient, cfg.URLs.AdvertiseClient = socket("s"), socket("s")
	cfg.URLs.ListenPeer, cfg.URLs.AdvertisePeer = socket("p"), socket("p")
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	var out bytes.Buffer
	d := demo{
		endpoints: []string{"unix:" + filepath.Join(dir, "s")}, readers: 20, changes: 10,
		pause: time.Millisecond, out: &out,
	}
	if err := d.run(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.HasSuffix(out.String(), "none was old\n") {
		t.Errorf("it says %q", out.String())
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
