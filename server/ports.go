package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"

	"leasehold.dev/internal/listen"
)

// port is an open listener and what it is for.
type port struct {
	net.Listener
	tls *tls.Config // nil if its connections are not encrypted
	use use
}

type use uint8

const (
	useClients use = iota
	useHTTP
	useMetrics
	usePeers
)

// openPorts opens urls, all or none. conf is for those that are encrypted.
func openPorts(ctx context.Context, urls []url.URL, conf *tls.Config, use use) ([]port, error) {
	var all []port
	for _, u := range urls {
		l, err := listen.Listen(ctx, u)
		if err != nil {
			return nil, errors.Join(err, closeAll(all))
		}
		o := port{Listener: l, use: use}
		if listen.IsTLS(u) {
			o.tls = conf
		}
		all = append(all, o)
	}
	return all, nil
}

func closeAll(all []port) error {
	var err error
	for _, o := range all {
		err = errors.Join(err, o.Close())
	}
	return err
}

// certified returns t as package listen knows it, with a self-signed certificate
// in dir for the hosts of urls if t asks for one.
func (t TLS) certified(dir string, urls []url.URL) (listen.TLS, error) {
	var hosts []string
	for _, u := range urls {
		hosts = append(hosts, u.Host)
	}
	return t.listen().SelfSigned(dir, hosts)
}
