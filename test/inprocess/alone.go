package inprocess

import (
	"context"
	"errors"
	"os"

	"leasehold.dev/client"
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

// Client is a client of a member that it runs as Alone does, and how to end both.
func Client() (c *client.Client, stop func()) {
	endpoint, end := Alone()
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		panic(err)
	}
	return c, func() {
		if err := c.Close(); err != nil {
			panic(err)
		}
		end()
	}
}
