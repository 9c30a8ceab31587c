package version

import (
	"regexp"
	"strings"
	"testing"
)

// TestShape checks that the versions are valid semantic versions, because client libraries parse
// them, and that the API version is a prefix of the etcd version.
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
