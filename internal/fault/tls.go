package fault

import "strings"

// TLSHint says what to change if the reason for which there is no connection shows that one end
// speaks TLS and the other one does not; else nothing. It goes behind that reason. Our members
// answer in HTTP/1.1 to a client that comes without TLS.
func TLSHint(why string) string {
	switch {
	case strings.Contains(why, "looked like an HTTP/1.1 header"):
		return " (perhaps the port speaks TLS: use https://)"
	case strings.Contains(why, "first record does not look like a TLS handshake"):
		return " (perhaps the port speaks no TLS: use http://)"
	}
	return ""
}
