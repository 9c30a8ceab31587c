package web

import (
	"fmt"
	"slices"
)

// Settings determines whether the gateway and the page are served and which clients may use them.
// Members and relays share these settings.
type Settings struct {
	// Gateway enables the JSON gateway.
	Gateway bool
	// UI is one of the values below. The page requires the gateway.
	UI string
	// CORS and HostWhitelist are described at [Options].
	CORS, HostWhitelist []string
}

// The values of Settings.UI. If there is no gateway, "" means UIOff.
const (
	UIOff, UIReadOnly, UIOn = "off", "read-only", "on"
)

// DefaultSettings returns settings that serve everything, but only to programs and to the server's
// own pages.
func DefaultSettings() Settings { return Settings{Gateway: true, UI: UIOn} }

// Check returns an error if a setting is invalid. The error refers to the command's flags.
func (s *Settings) Check() error {
	if !slices.Contains([]string{UIOff, UIReadOnly, UIOn}, s.UI) && (s.Gateway || s.UI != "") {
		return fmt.Errorf("--ui %q is not one of off, read-only, on", s.UI)
	}
	for _, origin := range s.CORS {
		if !isOrigin(origin) {
			return fmt.Errorf("--cors %q: write each allowed origin as "+
				"browsers send it, such as https://admin.example.com or http://localhost:3000; "+
				"wildcards are not allowed", origin)
		}
	}
	return nil
}

// HasPage reports whether the page for browsers is served.
func (s *Settings) HasPage() bool { return s.Gateway && s.UI != UIOff }
