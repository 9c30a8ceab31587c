package cluster

import (
	"net"
	"testing"
	"time"

	"leasehold.dev/internal/cli/app"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/cause"
	"leasehold.dev/test/tier"
)

// TestAnswersNoCall checks that a member that accepts connections but answers no calls is
// distinguished from an unreachable one, even if the client has to log in first.
func TestAnswersNoCall(t *testing.T) {
	tier.Campaign(t)
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	at := hangs.Addr().String()
	for name, auth := range map[string]*clientv3.AuthConfig{
		"nobody": nil, "a user": {Username: "root", Password: "secret"},
	} {
		a := &app.App{}
		a.Flags.CommandTimeout = time.Second
		l := NewProber(a, &clientv3.ConfigSpec{
			Endpoints: []string{at}, DialTimeout: time.Second, Auth: auth,
		})
		var x Member
		x.ask(l, at)
		l.Close()
		if x.Error != saysNothing || x.Cause != cause.Hangs {
			t.Errorf("as %s: %s, %s", name, x.Cause, x.Error)
		}
	}
}
