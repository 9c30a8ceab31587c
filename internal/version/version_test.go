package version

import (
	"regexp"
	"strings"
	"testing"
)

// Goal: client libraries parse these as semantic versions. Method: the shape
// they accept, and the API version as a prefix of the etcd version.
func TestShape(t *testing.T) {
	semver := regexp.MustCompile(`^\d+\.\d+\.\d+$`)
	for _, v := range []string{Version, EtcdVersion} {
		if !semver.MatchString(v) {
			t.Errorf("%q is not a semantic version", v)
		}
	}
	if !strings.HasPrefix(EtcdVersion, EtcdAPIVersion+".") {
		t.Errorf("etcd version %q is not of API version %q", EtcdVersion, EtcdAPIVersion)
	}
}
