package fault

import "strings"

// TLSHint returns a remedy if the reason for a failed connection shows that only one end uses TLS,
// and "" otherwise. The remedy is meant to be appended to the reason. Members send an HTTP/1.1
// response to a client that does not use TLS.
func TLSHint(why string) string {
	switch {
	case strings.Contains(why, "looked like an HTTP/1.1 header"):
		return " (perhaps the port speaks TLS: use https://)"
	case strings.Contains(why, "first record does not look like a TLS handshake"):
		return " (perhaps the port does not speak TLS: use http://)"
	}
	return ""
}
