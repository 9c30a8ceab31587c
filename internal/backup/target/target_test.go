package target

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"leasehold.dev/internal/backup"
	"leasehold.dev/test/process"
)

const (
	testID     = "AKIDTEST"
	testSecret = "never-show-this-secret"
)

// fakeS3 serves S3 over HTTP with a bucket "backups" until the test ends. If meddle is set and
// returns true, it has answered the request, and the store does not see it.
type fakeS3 struct {
	url     string
	meddle  atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	puts    atomic.Int64
	pageOf2 atomic.Bool
}

func newFakeS3(t *testing.T) *fakeS3 {
	t.Helper()
	store := s3mem.New()
	if err := store.CreateBucket("backups"); err != nil {
		t.Fatal(err)
	}
	f := new(fakeS3)
	inner := gofakes3.New(store).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !signedBy(r, testID, testSecret) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `<Error><Code>SignatureDoesNotMatch</Code></Error>`)
			return
		}
		if r.Method == http.MethodPut {
			f.puts.Add(1)
		}
		if m := f.meddle.Load(); m != nil && (*m)(w, r) {
			return
		}
		if r.Header.Get("If-None-Match") == "*" {
			name := strings.TrimPrefix(r.URL.Path, "/backups/")
			if _, err := store.HeadObject("backups", name); err == nil {
				w.WriteHeader(http.StatusPreconditionFailed)
				_, _ = io.WriteString(w, `<Error><Code>PreconditionFailed</Code></Error>`)
				return
			}
		}
		if f.pageOf2.Load() && r.URL.Query().Has("list-type") {
			q := r.URL.Query()
			q.Set("max-keys", "2")
			r.URL.RawQuery = q.Encode()
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

var authorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=([^/]*)/(\S*), ?` +
	`SignedHeaders=([^,]*), ?Signature=([0-9a-f]*)$`)

// signedBy verifies the signature of a request according to Amazon's Signature Version 4.
func signedBy(r *http.Request, id, secret string) bool {
	m := authorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if m == nil || m[1] != id {
		return false
	}
	canonical := r.Method + "\n" + r.URL.EscapedPath() + "\n" + r.URL.RawQuery + "\n"
	for name := range strings.SplitSeq(m[3], ";") {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		canonical += name + ":" + strings.TrimSpace(value) + "\n"
	}
	canonical += "\n" + m[3] + "\n" + r.Header.Get("X-Amz-Content-Sha256")
	sum := sha256.Sum256([]byte(canonical))
	key := []byte("AWS4" + secret)
	mac := func(text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	for part := range strings.SplitSeq(m[2], "/") {
		key = mac(part)
	}
	return hex.EncodeToString(mac("AWS4-HMAC-SHA256\n"+r.Header.Get("X-Amz-Date")+"\n"+m[2]+"\n"+
		hex.EncodeToString(sum[:]))) == m[4]
}

// open returns a Target on the server.
func (f *fakeS3) open(t *testing.T, prefix string) Target {
	t.Helper()
	x, err := Open("s3://backups/"+prefix+"?endpoint="+f.url, credentialsOf(t, testSecret))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// credentialsOf writes a credentials file with the given secret and returns its name.
func credentialsOf(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "credentials")
	writeCredentials(t, file, secret)
	return file
}

func writeCredentials(t *testing.T, file, secret string) {
	t.Helper()
	text := fmt.Sprintf("# mine\n[default]\naws_access_key_id = %s\naws_secret_access_key=%s\n"+
		"[other]\naws_secret_access_key=zzz\n", testID, secret)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// both runs a test against a directory and against a bucket.
func both(t *testing.T, test func(*testing.T, Target)) {
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		x, err := Open("file://"+t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		test(t, x)
	})
	t.Run("bucket", func(t *testing.T) {
		t.Parallel()
		f := newFakeS3(t)
		f.pageOf2.Store(true)
		test(t, f.open(t, "some/prefix"))
	})
}

// TestObjects checks that objects can be written, read back unchanged, listed, replaced and
// removed.
func TestObjects(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, x Target) {
		ctx := t.Context()
		big := bytes.Repeat([]byte("0123456789"), 300_000)
		want := map[string][]byte{
			"leasehold.json": []byte("{}"), "full/a.backup": big, "log/a.log": {1}, "log/b.log": {},
			"log/c.log": []byte("old"),
		}
		for name, b := range want {
			if err := Store(ctx, x, Bytes(name, b)); err != nil {
				t.Fatal(err)
			}
		}
		want["log/c.log"] = []byte("new")
		if err := Store(ctx, x, Bytes("log/c.log", want["log/c.log"])); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(x.Delete(ctx, "log/a.log"), x.Delete(ctx, "log/a.log")); err != nil {
			t.Fatal(err)
		}
		delete(want, "log/a.log")
		objects, err := x.List(ctx)
		if err != nil || len(objects) != len(want) {
			t.Fatalf("%v, %v", objects, err)
		}
		for _, o := range objects {
			got, err := Load(ctx, x, o.Name)
			if err != nil || o.Bytes != int64(len(got)) || !bytes.Equal(got, want[o.Name]) {
				t.Errorf("%s: %d of %d bytes, %v", o.Name, len(got), o.Bytes, err)
			}
		}
		if _, err := Load(ctx, x, "log/a.log"); !errors.Is(err, ErrNotFound) {
			t.Errorf("an object that was removed: %v", err)
		}
	})
}

// TestCutOff checks that a write that fails midway leaves no object behind.
func TestCutOff(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, x Target) {
		c := Bytes("log/a.log", bytes.Repeat([]byte("x"), 1<<20))
		whole := c.Write
		c.Write = func(w io.Writer) error {
			_ = whole(&onlySome{w, 1 << 19})
			return errors.New("cut off")
		}
		if err := Store(t.Context(), x, c); err == nil || !strings.Contains(err.Error(), "cut off") {
			t.Errorf("%v", err)
		}
		if objects, err := x.List(t.Context()); err != nil || len(objects) > 0 {
			t.Errorf("%v, %v", objects, err)
		}
	})
}

// onlySome accepts a limited number of bytes and then fails.
type onlySome struct {
	w    io.Writer
	left int
}

func (w *onlySome) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	if n < len(p) {
		return n, errors.New("full")
	}
	return w.w.Write(p[:n])
}

// TestClaim checks that a target belongs to the first history that claims it, and rejects other
// clusters and the history after a restore.
func TestClaim(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, x Target) {
		ctx := t.Context()
		of := func(cluster, restore uint64) backup.History {
			return backup.History{Cluster: cluster, Restore: restore}
		}
		if _, err := History(ctx, x); !errors.Is(err, ErrNotFound) {
			t.Errorf("before: %v", err)
		}
		if err := errors.Join(Claim(ctx, x, of(7, 5)), Claim(ctx, x, of(7, 5))); err != nil {
			t.Error(err)
		}
		if h, err := History(ctx, x); h != of(7, 5) || err != nil {
			t.Errorf("%v, %v", h, err)
		}
		for _, h := range []backup.History{of(8, 5), of(7, 6), of(7, 0)} {
			err := Claim(ctx, x, h)
			if !errors.Is(err, backup.ErrOtherCluster) ||
				!strings.Contains(err.Error(), "0000000000000007 since restore 0000000000000005") ||
				!strings.Contains(err.Error(), "use another directory or prefix") {
				t.Errorf("%v: %v", h, err)
			}
		}
		name := backup.FullName(backup.Place{Index: 1, Term: 1}, 1, testTime)
		if err := errors.Join(x.Delete(ctx, backup.ManifestName),
			Store(ctx, x, Bytes(name, []byte("x")))); err != nil {
			t.Fatal(err)
		}
		if err := Claim(ctx, x, of(7, 5)); err == nil || !strings.Contains(err.Error(), "no leasehold.json") {
			t.Errorf("backups of whomever: %v", err)
		}
	})
}

// TestClaimRace makes two clusters claim an empty target at the same time. The first to write wins,
// and the second is rejected.
func TestClaimRace(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, x Target) {
		first, second := backup.History{Cluster: 7}, backup.History{Cluster: 8}
		between := beforePut{x, func() error { return Claim(t.Context(), x, first) }}
		if err := Claim(t.Context(), between, second); !errors.Is(err, backup.ErrOtherCluster) {
			t.Errorf("the second: %v", err)
		}
		if h, err := History(t.Context(), x); h != first || err != nil {
			t.Errorf("it is of %v, %v", h, err)
		}
		objects, err := x.List(t.Context())
		if len(objects) != 1 || err != nil {
			t.Errorf("it has %v, %v", objects, err)
		}
	})
}

// beforePut calls a function before each Put.
type beforePut struct {
	Target
	do func() error
}

// Put implements Target.
func (b beforePut) Put(ctx context.Context, c Content) error {
	return errors.Join(b.do(), b.Target.Put(ctx, c))
}

// TestReadBack checks that an object that reads back differently is reported as damaged and
// removed.
func TestReadBack(t *testing.T) {
	t.Parallel()
	f := newFakeS3(t)
	x := f.open(t, "")
	lie := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			w.Header().Set("Last-Modified", testTime.Format(http.TimeFormat))
			_, _ = io.WriteString(w, "something else")
			return true
		}
		return false
	}
	f.meddle.Store(&lie)
	err := Store(t.Context(), x, Bytes("log/a", []byte("14 bytes long.")))
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("%v", err)
	}
	f.meddle.Store(nil)
	if objects, err := x.List(t.Context()); err != nil || len(objects) > 0 {
		t.Errorf("%v, %v", objects, err)
	}
}

// TestRefusals checks that an error states why the object store rejected a request, and never
// contains the secret.
func TestRefusals(t *testing.T) {
	t.Parallel()
	f := newFakeS3(t)
	open := func(name, credentialsFile string) Target {
		x, err := Open(name, credentialsFile)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	nobody := "http://" + process.MustFreeAddr()
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte("[other]\naws_access_key_id=x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	incomplete := credentialsOf(t, "")
	good := credentialsOf(t, testSecret)
	at := "?endpoint=" + f.url
	for _, c := range []struct {
		target Target
		want   string
	}{
		{open("s3://backups"+at, credentialsOf(t, "wrong-secret")), "credentials were rejected"},
		{open("s3://backups"+at, file), `section "default" does not exist`},
		{open("s3://backups"+at, incomplete), "must both be set"},
		{open("s3://backups"+at, file+"x"), "no such file"},
		{open("s3://missing"+at, good), "the bucket does not exist"},
		{open("s3://backups?endpoint="+nobody, good), "connection refused"},
		{open(file, ""), "not a directory"},
		{open(file+"x", ""), "does not exist"},
	} {
		ctx := t.Context()
		_, listed := x(c.target.List(ctx))
		for what, err := range map[string]error{
			"put": c.target.Put(ctx, Bytes("log/a", []byte("x"))), "list": listed,
		} {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %s: %v, want %q", c.target, what, err, c.want)
			} else if strings.Contains(err.Error(), "secret") &&
				!strings.Contains(err.Error(), "aws_secret") {
				t.Errorf("it shows the secret: %v", err)
			}
		}
	}
	if n := f.puts.Load(); n != 1 { // the request to the missing bucket
		t.Errorf("%d were let in", n)
	}
}

func x[A, B any](a A, b B) (A, B) { return a, b }

// TestCredentialsFile checks that the credentials file is read for each request, and that the
// environment does not override it.
func TestCredentialsFile(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "other")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "other")
	f := newFakeS3(t)
	file := credentialsOf(t, testSecret)
	target, err := Open("s3://backups?endpoint="+f.url, file)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{testSecret, "wrong", testSecret} {
		writeCredentials(t, file, secret)
		if _, err := target.List(t.Context()); (err == nil) != (secret == testSecret) {
			t.Errorf("with %s: %v", secret, err)
		}
	}
}

// TestCredentialsWithoutFile checks that without a file, the credentials come from the environment
// or, failing that, from the machine's role.
func TestCredentialsWithoutFile(t *testing.T) {
	f := newFakeS3(t)
	answer := ""
	machine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(machine.Close)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", machine.URL)
	for _, c := range []struct{ id, secret, role, want string }{
		{id: testID, secret: testSecret},
		{id: testID, secret: "wrong", want: "credentials were rejected"},
		{id: testID, want: "no credentials found; set AWS_ACCESS_KEY_ID"},
		{role: fmt.Sprintf(`{"AccessKeyId": %q, "SecretAccessKey": %q, "Expiration": %q}`,
			testID, testSecret, time.Now().Add(time.Hour).Format(time.RFC3339))},
	} {
		answer = c.role
		t.Setenv("AWS_ACCESS_KEY_ID", c.id)
		t.Setenv("AWS_SECRET_ACCESS_KEY", c.secret)
		x, err := Open("s3://backups?endpoint="+f.url, "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = x.List(t.Context())
		if c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestParts checks that an object of more than 16 MiB is sent in parts, and that no object is left
// if the last part fails.
func TestParts(t *testing.T) {
	t.Parallel()
	f := newFakeS3(t)
	x := f.open(t, "")
	big := bytes.Repeat([]byte("0123456789abcdef"), 3<<20)
	big = big[:len(big)-7]
	if err := Store(t.Context(), x, Bytes("full/a", big)); err != nil {
		t.Error(err)
	}
	if n := f.puts.Load(); n != 3 {
		t.Errorf("%d parts were sent, not 3", n)
	}
	full := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("partNumber") != "3" {
			return false
		}
		w.WriteHeader(http.StatusInsufficientStorage)
		return true
	}
	f.meddle.Store(&full)
	if err := Store(t.Context(), x, Bytes("full/b", big)); err == nil ||
		!strings.Contains(err.Error(), "507") {
		t.Errorf("a part is refused: %v", err)
	}
	if objects, err := x.List(t.Context()); err != nil || len(objects) != 1 {
		t.Errorf("%v, %v", objects, err)
	}
}

// TestSilentServer checks that a call returns when its context ends, even if the server does not
// answer.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	f := newFakeS3(t)
	x := f.open(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	silent := func(_ http.ResponseWriter, r *http.Request) bool {
		// The server notices that a client has disconnected only after it has read the body.
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
		return true
	}
	f.meddle.Store(&silent)
	if err := x.Put(ctx, Bytes("log/a", []byte("x"))); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestOpenRefuses checks that an invalid target is rejected before any request. The error does not
// show anything that might be secret.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"":                               "it is empty",
		"ftp://host/dir":                 "s3://BUCKET",
		"file://host/dir":                "file:///DIRECTORY",
		"s3:///prefix":                   "does not name a bucket",
		"s3://id:secret@bucket":          "must not contain credentials",
		"s3://b":                         "shorter than 3",
		"s3://bbb?secret_key=secret":     "unknown parameter",
		"s3://bbb?endpoint=host:9000":    "must be http://HOST:PORT",
		"s3://bbb?endpoint=http://a:s@h": "must be http://HOST:PORT",
		"s3://bbb?endpoint=http://h/sub": "must be http://HOST:PORT",
		"s3://id:secret%zz@bucket":       "cannot parse the URL",
		"gs://id:secret@bucket":          "s3://BUCKET",
	} {
		_, err := Open(name, "")
		if !errors.Is(err, errURL) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret@") || strings.Contains(err.Error(), "=secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"/a/b/": "/a/b", "file:///a/b": "/a/b", "rel": "rel",
		"s3://bucket":                         "s3://bucket/",
		"s3://bucket/x/?endpoint=http://h:90": "s3://bucket/x/ at h:90",
	} {
		if x, err := Open(name, ""); err != nil || x.String() != want {
			t.Errorf("%s: %v, %v", name, x, err)
		}
	}
}

// hanging is a target whose Put blocks until the test releases it.
type hanging struct {
	Target
	until chan struct{}
}

func (h *hanging) Put(context.Context, Content) error { <-h.until; return nil }

// TestHanging checks that an unresponsive file system does not block callers. While too many calls
// hang, new calls fail without reaching the file system.
func TestHanging(t *testing.T) {
	t.Parallel()
	h := &hanging{newDirectory(t.TempDir()), make(chan struct{})}
	d := detach(h)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range mostHanging {
		if err := d.Put(ctx, Content{}); !errors.Is(err, context.Canceled) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := d.Put(t.Context(), Content{}); !errors.Is(err, errHanging) {
		t.Errorf("the next call: %v", err)
	}
	close(h.until)
	for len(d.places) > 0 {
		d.places <- struct{}{} // blocks until one of those calls returns
		<-d.places
	}
	if err := d.Put(t.Context(), Content{}); err != nil {
		t.Errorf("when they have returned: %v", err)
	}
}

// TestHalfWritten checks that a file left half-written by a crash is not mistaken for a backup.
func TestHalfWritten(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	x, err := Open(root, "")
	if err != nil {
		t.Fatal(err)
	}
	name := backup.FullName(backup.Place{Index: 1, Term: 1}, 1, testTime)
	part := filepath.Join(root, name+backup.PartSuffix)
	if err := errors.Join(os.Mkdir(filepath.Dir(part), 0o700),
		os.WriteFile(part, []byte("half"), 0o600)); err != nil {
		t.Fatal(err)
	}
	c, err := Catalog(t.Context(), x)
	if err != nil || len(c.Fulls) > 0 || len(c.Others) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if err := Store(t.Context(), x, Bytes(name, []byte("whole"))); err != nil {
		t.Error(err)
	}
	c, err = Catalog(t.Context(), x)
	if err != nil || len(c.Fulls) != 1 || !slices.Equal(c.Others, nil) {
		t.Errorf("%+v, %v", c, err)
	}
}

var testTime = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// TestStoresWithoutConditions covers stores that do not support If-None-Match and reject it with
// one of these statuses. The target is then claimed without the condition. A request rejected for
// another reason is an error.
func TestStoresWithoutConditions(t *testing.T) {
	t.Parallel()
	for _, status := range []int{
		http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotImplemented,
	} {
		f := newFakeS3(t)
		refuseAll := false
		refuse := func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut || !refuseAll && r.Header.Get("If-None-Match") == "" {
				return false
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "<Error><Code>Refused</Code></Error>")
			return true
		}
		f.meddle.Store(&refuse)
		x := f.open(t, "here")
		if err := Claim(t.Context(), x, backup.History{Cluster: 1}); err != nil {
			t.Errorf("%d: %v", status, err)
		}
		if err := Claim(t.Context(), x, backup.History{Cluster: 2}); !errors.Is(err, backup.ErrOtherCluster) {
			t.Errorf("%d: claimed by two: %v", status, err)
		}
		refuseAll = true
		if err := Claim(t.Context(), f.open(t, "there"), backup.History{Cluster: 1}); err == nil ||
			!strings.Contains(err.Error(), "Refused") {
			t.Errorf("%d for another reason: %v", status, err)
		}
	}
}
