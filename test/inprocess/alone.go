package inprocess

import (
	"context"
	"errors"
	"os"

	"leasehold.dev/server"
)

// Alone runs one member for an example, which has no test to fail: it panics if that cannot
// be done. It returns where the member serves clients, and how to end it and its data.
func Alone() (endpoint string, stop func()) {
	dir, err := os.MkdirTemp("", "lh") // a short name, for a socket's has a bound
	if err != nil {
		panic(err)
	}
	cfg := Config(dir, "m")
	s, err := server.New(cfg)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	return "unix:" + cfg.URLs.AdvertiseClient[0].Path, func() {
		cancel()
		if err := errors.Join(<-done, os.RemoveAll(dir)); err != nil {
			panic(err)
		}
	}
}
