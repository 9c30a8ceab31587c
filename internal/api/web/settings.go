package web

import (
	"fmt"
	"slices"
)

// Settings say which of the gateway and the page there is, and whom they answer. Members and
// relays are told them alike.
type Settings struct {
	// Gateway serves the JSON gateway.
	Gateway bool
	// UI is one of the values below. The page needs the gateway: one that could ask nothing is of
	// no use.
	UI string
	// CORS and HostWhitelist are those of [Options].
	CORS, HostWhitelist []string
}

// The values of Settings.UI. "" is UIOff where there is no gateway.
const (
	UIOff, UIReadOnly, UIOn = "off", "read-only", "on"
)

// DefaultSettings are all that there is, for programs and for the server's own pages.
func DefaultSettings() Settings { return Settings{Gateway: true, UI: UIOn} }

// Check says what is wrong, in terms of the flags of the commands.
func (s *Settings) Check() error {
	if !slices.Contains([]string{UIOff, UIReadOnly, UIOn}, s.UI) && (s.Gateway || s.UI != "") {
		return fmt.Errorf("--ui %q is not one of off, read-only, on", s.UI)
	}
	for _, origin := range s.CORS {
		if !isOrigin(origin) {
			return fmt.Errorf("--cors %q: name each origin whose pages may call this server as "+
				"browsers send it, such as https://admin.example.com or http://localhost:3000; "+
				"no wildcard is allowed", origin)
		}
	}
	return nil
}

// HasPage reports whether there is a page for people.
func (s *Settings) HasPage() bool { return s.Gateway && s.UI != UIOff }
