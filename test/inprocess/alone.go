package inprocess

import (
	"context"
	"errors"
	"os"

	"leasehold.dev/client"
	"leasehold.dev/server"
)

// Alone runs a single member for an example. It panics if it cannot run the member, because an
// example has no test to fail. It returns the endpoint for clients, and a function that stops the
// member and deletes its data.
func Alone() (endpoint string, stop func()) {
	// a short name, because the length of a socket's name is limited
	dir, err := os.MkdirTemp("", "lh")
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

// Client runs a single member like Alone. It returns a client of the member, and a function that
// closes the client and stops the member.
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
