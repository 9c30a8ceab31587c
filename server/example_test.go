package server_test

import (
	"context"
	"fmt"
	"log"
	"net/url"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/server"
)

// A program has a member within itself. Any etcd client talks to it; here over a socket, which
// takes no port.
func ExampleServer() {
	dir, err := os.MkdirTemp("", "lh")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := func(name string) []url.URL {
		return []url.URL{{Scheme: "unix", Path: filepath.Join(dir, name)}}
	}
	cfg := server.DefaultConfig()
	cfg.DataDir = filepath.Join(dir, "data")
	cfg.URLs.ListenClient, cfg.URLs.AdvertiseClient = socket("clients"), socket("clients")
	cfg.URLs.ListenPeer, cfg.URLs.AdvertisePeer = socket("peers"), socket("peers")

	s, err := server.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.Ready()

	at := s.Endpoint()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{at.String()}, DialTimeout: time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	lease, err := c.Grant(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Put(ctx, "nodes/a", "10.0.0.1", clientv3.WithLease(lease.ID)); err != nil {
		log.Fatal(err)
	}
	left, err := c.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s goes with the lease\n", left.Keys[0])

	c.Close()
	stop()
	fmt.Println("the member ended:", <-ended)
	// Output:
	// nodes/a goes with the lease
	// the member ended: <nil>
}
