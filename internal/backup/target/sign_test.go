package target

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"
)

// Requests are signed as minio-go signs them.
func TestSign(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // in which the time stands still
		for _, x := range []struct{ method, url, session string }{
			{"PUT", "https://bucket.s3.eu-1.amazonaws.com/a/b%20c/full/1-2.backup", ""},
			{"GET", "http://127.0.0.1:9000/bucket/?list-type=2&prefix=some%2Fprefix%2F", ""},
			{"DELETE", "http://host/bucket/key", "a session"},
		} {
			ours, err := http.NewRequestWithContext(t.Context(), x.method, x.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			ours.Header.Set("X-Amz-Content-Sha256", emptySum)
			theirs := signer.SignV4(*ours.Clone(t.Context()), testID, testSecret, x.session, "eu-1")
			keys{testID, testSecret, x.session}.sign(ours, "eu-1", time.Now())
			for _, name := range []string{"X-Amz-Date", "X-Amz-Security-Token", "Authorization"} {
				want := theirs.Header.Get(name)
				if got := ours.Header.Get(name); got != want {
					t.Errorf("%s %s: %s is\n%s, want\n%s", x.method, x.url, name, got, want)
				}
			}
		}
	})
}
