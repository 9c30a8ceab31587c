package api

import (
	"context"
	"crypto/x509"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// maxCaller limits the length of Caller's result, because it is written to the log.
const maxCaller = 256

// unixSocket describes a caller on a Unix socket. Such a caller runs on the member's machine.
const unixSocket = "unix socket"

// Caller returns a readable description of the caller. It prefers the name in the caller's
// certificate and falls back to the address of its connection. The result is empty if neither is
// known.
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

// Address returns the address of the caller's connection. It includes the port, unless the call
// came through the JSON gateway. It is empty if the address is unknown.
func Address(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	switch p.Addr.Network() {
	case "unix":
		return unixSocket
	case "bufconn": // the JSON gateway, which forwards the address
		return forwardedFor(ctx)
	default:
		return p.Addr.String()
	}
}

// forwardedFor returns the last forwarded address. The gateway itself added this address.
func forwardedFor(ctx context.Context) string {
	m, _ := metadata.FromIncomingContext(ctx)
	list := m.Get("x-forwarded-for")
	if len(list) == 0 {
		return unixSocket // callers on a Unix socket have no address
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
