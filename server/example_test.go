package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/server"
)

// A program can embed a member. Any etcd client can connect to it, here over a unix socket, which
// needs no port.
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

// This is one of three members that found a cluster, over TLS. Only settings that differ from the
// defaults are set.
func ExampleConfig() {
	at := func(host string, port int) []url.URL {
		return []url.URL{{Scheme: "https", Host: fmt.Sprintf("%s:%d", host, port)}}
	}
	cfg := server.DefaultConfig()
	cfg.Name, cfg.DataDir = "a", "/var/lib/leasehold"
	cfg.URLs.ListenClient, cfg.URLs.AdvertiseClient = at("10.0.0.1", 2379), at("10.0.0.1", 2379)
	cfg.URLs.ListenPeer, cfg.URLs.AdvertisePeer = at("10.0.0.1", 2380), at("10.0.0.1", 2380)
	cfg.Cluster.State = "new"
	cfg.Cluster.Initial = map[string][]url.URL{
		"a": at("10.0.0.1", 2380), "b": at("10.0.0.2", 2380), "c": at("10.0.0.3", 2380),
	}
	cert := server.TLS{CertFile: "/etc/leasehold/a.crt", KeyFile: "/etc/leasehold/a.key"}
	cfg.ClientTLS, cfg.PeerTLS = cert, cert
	cfg.Access.Token = "jwt,sign-method=ES256,priv-key=/etc/leasehold/token.pem"
	cfg.Limits.QuotaBackendBytes = 4 << 30
	cfg.GRPC.KeepAliveInterval = time.Minute
	cfg.Raft.ElectionTimeout = 2 * time.Second
	cfg.Lease.MaxKeys = 1000
	cfg.Compaction.Mode, cfg.Compaction.Period = "periodic", 24*time.Hour
	cfg.HTTP.Pprof = true
	fmt.Println("it can be run:", cfg.Validate() == nil)
	cfg.Raft.Heartbeat = time.Second
	fmt.Println("and with so long a heartbeat:", cfg.Validate() == nil)
	// Output:
	// it can be run: true
	// and with so long a heartbeat: false
}

// An incomplete backup is rejected, and Restore leaves nothing behind.
func ExampleRestore() {
	dir, err := os.MkdirTemp("", "lh")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := strings.NewReader("LEASEHOLD cut off")
	var info server.BackupInfo
	info, err = server.BackupStatus(file)
	fmt.Println(info.Keys, "keys:", errors.Is(err, server.ErrBackup))

	cfg := server.DefaultConfig()
	cfg.DataDir = filepath.Join(dir, "restored")
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		log.Fatal(err)
	}
	err = server.Restore(file, cfg, server.RestoreOptions{})
	fmt.Println("refused:", errors.Is(err, server.ErrBackup))
	// Output:
	// 0 keys: true
	// refused: true
}
