package api

import (
	"context"
	"crypto/x509"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// maxCaller bounds the text of Caller, in bytes, since it goes into the log.
const maxCaller = 256

// unixSocket is the name of a caller over one: all such callers are on the member's machine.
const unixSocket = "unix socket"

// Caller says who makes a call, for people: the name in the caller's certificate or, without
// one, the address of its connection. It is empty if neither is known.
func Caller(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	out := Address(ctx)
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
		if name := certificateName(info.State.PeerCertificates[0]); name != "" {
			out = name
		}
	}
	return strings.ToValidUTF8(out[:min(len(out), maxCaller)], "")
}

// Address is where a call comes from: the address of its connection, with the port unless it is
// the JSON gateway's. It is empty if nobody knows.
func Address(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	switch p.Addr.Network() {
	case "unix":
		return unixSocket
	case "bufconn": // the JSON gateway, which says for whom it asks
		return forwardedFor(ctx)
	default:
		return p.Addr.String()
	}
}

// forwardedFor returns the last address that the gateway noted, which is the one that it
// saw itself.
func forwardedFor(ctx context.Context) string {
	m, _ := metadata.FromIncomingContext(ctx)
	list := m.Get("x-forwarded-for")
	if len(list) == 0 {
		return unixSocket // which has no address
	}
	last := list[len(list)-1]
	return strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])
}

func certificateName(c *x509.Certificate) string {
	switch {
	case c.Subject.CommonName != "":
		return c.Subject.CommonName
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	case len(c.URIs) > 0:
		return c.URIs[0].String()
	default:
		return ""
	}
}
