package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"leasehold.dev/internal/backup"
)

// bucket stores objects in a bucket of S3 or a compatible store.
type bucket struct {
	name, prefix, endpoint string
	client                 minio.Core
}

const (
	defaultRegion = "us-east-1"
	// answerLimit is the timeout for connecting, and for receiving the beginning of a response.
	answerLimit = 30 * time.Second
	// roleLimit is the timeout for requesting the credentials of the machine's role.
	roleLimit = 5 * time.Second
	// attempts is how many times a request is sent if the server is busy or the connection breaks.
	attempts = 3
)

func newBucket(u *url.URL, credentialsFile string) (*bucket, error) {
	bad := func(why string) (*bucket, error) {
		return nil, fmt.Errorf("%w: s3://%s%s: %s", errURL, u.Host, u.Path, why)
	}
	if u.User != nil {
		return bad("it must not contain credentials, since it is displayed; put them in the " +
			"variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in a file")
	}
	if u.Host == "" {
		return bad("it does not name a bucket; write s3://BUCKET/PREFIX")
	}
	if err := s3utils.CheckValidBucketName(u.Host); err != nil {
		return bad(err.Error())
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("cannot parse its parameters")
	}
	for name := range q {
		if name != "endpoint" && name != "region" {
			return bad(fmt.Sprintf("unknown parameter %q; the parameters are endpoint and region", name))
		}
	}
	at := &url.URL{Scheme: "https", Host: "s3.amazonaws.com"}
	b := &bucket{name: u.Host, prefix: strings.Trim(u.Path, "/")}
	if b.prefix != "" {
		b.prefix += "/"
	}
	if end := q.Get("endpoint"); end != "" {
		at, err = url.Parse(end)
		if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" ||
			at.User != nil || at.RawQuery != "" || strings.Trim(at.Path, "/") != "" {
			return bad("its endpoint must be http://HOST:PORT or https://HOST:PORT")
		}
		b.endpoint = at.Host
	}
	transport := newTransport()
	client, err := minio.New(at.Host, &minio.Options{
		Creds:      newCredentials(credentialsFile, transport),
		Secure:     at.Scheme == "https",
		Transport:  transport,
		Region:     cmp.Or(q.Get("region"), os.Getenv("AWS_REGION"), defaultRegion),
		MaxRetries: attempts,
	})
	if err != nil {
		return bad(err.Error())
	}
	client.SetS3EnableDualstack(false) // endpoints in a private network have no dual-stack names
	b.client = minio.Core{Client: client}
	return b, nil
}

// newTransport returns a transport for a single server, which may be slow.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: answerLimit}).DialContext,
		TLSHandshakeTimeout:   answerLimit,
		ResponseHeaderTimeout: answerLimit,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       time.Minute,
		DisableCompression:    true,
	}
}

// newCredentials returns credentials from a file or, if file is "", from the environment or the AWS
// role of the machine, container or pod.
func newCredentials(file string, transport http.RoundTripper) *credentials.Credentials {
	switch {
	case file != "":
		return credentials.New(credentialsFile{
			&credentials.FileAWSCredentials{Filename: file, Profile: "default"},
		})
	case os.Getenv("AWS_ACCESS_KEY_ID") != "" && os.Getenv("AWS_SECRET_ACCESS_KEY") != "":
		return credentials.NewEnvAWS()
	}
	client := &http.Client{Transport: transport, Timeout: roleLimit}
	return credentials.New(role{&credentials.IAM{Client: client}})
}

// credentialsFile reads its file for every request, so that the file can be replaced.
type credentialsFile struct {
	*credentials.FileAWSCredentials
}

func (credentialsFile) IsExpired() bool { return true }

func (f credentialsFile) RetrieveWithCredContext(
	c *credentials.CredContext,
) (credentials.Value, error) {
	v, err := f.FileAWSCredentials.RetrieveWithCredContext(c)
	if err == nil && (v.AccessKeyID == "" || v.SecretAccessKey == "") {
		err = errors.New("its [default] section must contain aws_access_key_id and " +
			"aws_secret_access_key")
	}
	if err != nil {
		return v, fmt.Errorf("credentials file %s: %w", f.Filename, err)
	}
	return v, nil
}

type role struct{ *credentials.IAM }

func (r role) RetrieveWithCredContext(c *credentials.CredContext) (credentials.Value, error) {
	v, err := r.IAM.RetrieveWithCredContext(c)
	if err != nil {
		return v, fmt.Errorf("no credentials found; set AWS_ACCESS_KEY_ID and "+
			"AWS_SECRET_ACCESS_KEY, or set --backup-credentials-file (this machine has "+
			"no role either: %w)", withoutURL(err))
	}
	return v, nil
}

// String implements Target.
func (b *bucket) String() string {
	s := "s3://" + b.name + "/" + b.prefix
	if b.endpoint != "" {
		s += " at " + b.endpoint
	}
	return s
}

// explain adds the bucket and a remedy to an error.
func (b *bucket) explain(err error) error {
	var e minio.ErrorResponse
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &e):
		return fmt.Errorf("%s: %w", b, withoutURL(err))
	case e.Code == minio.NoSuchBucket:
		return fmt.Errorf("%s: the bucket does not exist; create it first", b)
	case e.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s: %w", b, ErrNotFound)
	case e.StatusCode == http.StatusForbidden || e.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s: the credentials were rejected (%s: %w); see AWS_ACCESS_KEY_ID and "+
			"AWS_SECRET_ACCESS_KEY, or the file set with --backup-credentials-file", b, e.Code, err)
	}
	return fmt.Errorf("%s: the server responded with %d %s: %w", b, e.StatusCode, e.Code, err)
}

// withoutURL removes the URL from an error, because the URL is long and String already names the
// bucket.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// Put implements Target. It sends content larger than 16 MiB in parts, and the object appears after
// the last part. The signature includes the MD5 of each part, which the server verifies. Buckets
// with object lock require the MD5, and not every store can verify signatures of chunks.
func (b *bucket) Put(ctx context.Context, c Content) error {
	r, w := io.Pipe()
	defer r.Close() // makes Write return
	go func() { w.CloseWithError(c.Write(w)) }()
	o := minio.PutObjectOptions{SendContentMd5: true, DisableContentSha256: true}
	if c.New {
		o.SetMatchETagExcept("*")
	}
	_, err := b.client.Client.PutObject(ctx, b.name, b.prefix+c.Name, r, c.Bytes, o)
	var e minio.ErrorResponse
	if c.New && errors.As(err, &e) {
		switch e.StatusCode {
		case http.StatusPreconditionFailed, http.StatusConflict:
			return fmt.Errorf("%s: %w: %s", b, errExists, c.Name)
		case http.StatusNotImplemented, http.StatusBadRequest, http.StatusMethodNotAllowed:
			// Without conditional writes, another cluster can write the object at the same time.
			c.New = false
			return b.Put(ctx, c)
		}
	}
	return b.explain(err)
}

// Get implements Target.
func (b *bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, _, _, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, b.explain(err)
	}
	return r, nil
}

// List implements Target.
func (b *bucket) List(ctx context.Context) (all []backup.Object, err error) {
	for o := range b.client.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{
		Prefix: b.prefix, Recursive: true,
	}) {
		if o.Err != nil {
			return nil, b.explain(o.Err)
		}
		all = append(all, backup.Object{Name: strings.TrimPrefix(o.Key, b.prefix), Bytes: o.Size})
	}
	return all, nil
}

// Delete implements Target.
func (b *bucket) Delete(ctx context.Context, name string) error {
	err := b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{})
	if err = b.explain(err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
