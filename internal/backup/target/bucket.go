package target

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"leasehold.dev/internal/backup"
)

// bucket keeps objects in a bucket that speaks S3. A client for all of S3, and a reader for all of
// XML, would weigh more than the rest of what makes backups, and take the smallest binary over its
// limit.
type bucket struct {
	name, prefix string
	base         url.URL // of the bucket
	region       string
	file         string // of the credentials
	getenv       func(string) string
	client       *http.Client
}

const (
	defaultRegion = "us-east-1"
	// emptySum is the SHA-256 of nothing, in hexadecimal.
	emptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	// largestPut is the most that S3 takes in one request.
	largestPut = 5 << 30
	// maxAnswer bounds what is read of an answer that is no object.
	maxAnswer = 16 << 20
)

func newBucket(u *url.URL, o Options) (*bucket, error) {
	bad := func(why string) (*bucket, error) {
		return nil, fmt.Errorf("%w: s3://%s%s: %s", errURL, u.Host, u.Path, why)
	}
	if u.User != nil {
		return bad("credentials do not belong into it, since it is shown; give them in the " +
			"variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in a file")
	}
	if u.Host == "" {
		return bad("it names no bucket; write s3://BUCKET/PREFIX")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("its parameters cannot be read")
	}
	for name := range q {
		if name != "endpoint" && name != "region" {
			return bad(fmt.Sprintf("unknown parameter %q; there are endpoint and region", name))
		}
	}
	b := &bucket{
		name: u.Host, prefix: strings.Trim(u.Path, "/"), file: o.CredentialsFile, getenv: o.Getenv,
		region: cmp.Or(q.Get("region"), o.Getenv("AWS_REGION"), defaultRegion),
		client: &http.Client{Transport: newTransport()},
	}
	if b.prefix != "" {
		b.prefix += "/"
	}
	if end := q.Get("endpoint"); end != "" {
		at, err := url.Parse(end)
		if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" ||
			at.User != nil || at.RawQuery != "" {
			return bad("its endpoint is not http://HOST:PORT or https://HOST:PORT")
		}
		b.base = *at.JoinPath(u.Host)
		return b, nil
	}
	b.base = url.URL{
		Scheme: "https", Host: u.Host + ".s3." + b.region + ".amazonaws.com", Path: "/",
	}
	return b, nil
}

// answerLimit is for how long a server may be silent.
const answerLimit = 30 * time.Second

// newTransport is for one server, which may be slow.
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

// String implements Target.
func (b *bucket) String() string {
	s := "s3://" + b.name + "/" + b.prefix
	if !strings.HasSuffix(b.base.Host, ".amazonaws.com") {
		s += " at " + b.base.Host
	}
	return s
}

// request is one to the bucket.
type request struct {
	method, key string
	query       url.Values
	body        io.Reader
	bytes       int64
	sum         string
}

// do sends a request. An answer that is not 2xx is an error.
func (b *bucket) do(ctx context.Context, x request) (*http.Response, error) {
	u := b.base
	if x.key != "" {
		u = *u.JoinPath(x.key)
	}
	u.RawQuery = strings.ReplaceAll(x.query.Encode(), "+", "%20")
	r, err := http.NewRequestWithContext(ctx, x.method, u.String(), x.body)
	if err != nil {
		return nil, err
	}
	r.ContentLength = x.bytes
	r.Header.Set("X-Amz-Content-Sha256", cmp.Or(x.sum, emptySum))
	k, err := b.credentials()
	if err != nil {
		return nil, err
	}
	k.sign(r, b.region, time.Now())
	resp, err := b.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b, unwrapURL(err))
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, b.refused(resp)
}

// unwrapURL leaves the URL out of an error: it is long, and String says which bucket it is.
func unwrapURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// refused says why the server has refused a request.
func (b *bucket) refused(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // else the status has to do
	code := element(string(text), "Code")
	why := strings.TrimSpace(code + " " + element(string(text), "Message"))
	switch {
	case code == "NoSuchBucket":
		return fmt.Errorf("%s: there is no such bucket; make it first", b)
	case resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s: %w", b, ErrNotFound)
	case resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s: the credentials are refused (%s); see AWS_ACCESS_KEY_ID and "+
			"AWS_SECRET_ACCESS_KEY, or the file of --backup-credentials-file", b,
			cmp.Or(why, resp.Status))
	}
	return fmt.Errorf("%s: the server answers %s", b, strings.TrimSpace(resp.Status+" "+why))
}

// Put implements Target. The server compares the SHA-256, so it takes all bytes or nothing.
func (b *bucket) Put(ctx context.Context, c Content) error {
	if c.Bytes > largestPut {
		return fmt.Errorf("%s: %d bytes are more than S3 takes at once, 5 GiB", b, c.Bytes)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	defer r.Close() // ends Write
	go func() { w.CloseWithError(c.Write(w)) }()
	body := io.Reader(r)
	if c.Bytes == 0 {
		body = http.NoBody // else its length counts as unknown
	}
	resp, err := b.do(ctx, request{
		method: http.MethodPut, key: b.prefix + c.Name, body: body, bytes: c.Bytes,
		sum: hex.EncodeToString(c.Sum[:]),
	})
	if err != nil {
		return err
	}
	return drain(resp)
}

// drain reads what is left of an answer, so that its connection can be used again.
func drain(resp *http.Response) error {
	_, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	return errors.Join(err, resp.Body.Close())
}

// Get implements Target.
func (b *bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	resp, err := b.do(ctx, request{method: http.MethodGet, key: b.prefix + name})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// List implements Target.
func (b *bucket) List(ctx context.Context) (all []backup.Object, err error) {
	q := url.Values{"list-type": {"2"}, "prefix": {b.prefix}}
	for {
		resp, err := b.do(ctx, request{method: http.MethodGet, query: q})
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return nil, err
		}
		page := string(text)
		if !strings.HasSuffix(strings.TrimSpace(page), "</ListBucketResult>") {
			return nil, fmt.Errorf("%s: its list of objects cannot be read", b)
		}
		parts := strings.Split(page, "<Contents>")
		for _, part := range parts[1:] {
			size, err := strconv.ParseInt(element(part, "Size"), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: its list of objects cannot be read: %w", b, err)
			}
			all = append(all, backup.Object{
				Name: strings.TrimPrefix(element(part, "Key"), b.prefix), Bytes: size,
			})
		}
		next := element(page, "NextContinuationToken")
		if element(page, "IsTruncated") != "true" || next == "" {
			return all, nil
		}
		q.Set("continuation-token", next)
	}
}

// element returns the text of the first element of a name, which has no attributes and no other
// elements in it: the answers that are read here have no more of XML.
func element(text, name string) string {
	_, text, _ = strings.Cut(text, "<"+name+">")
	text, _, found := strings.Cut(text, "</"+name+">")
	if !found {
		return ""
	}
	return html.UnescapeString(text)
}

// Delete implements Target.
func (b *bucket) Delete(ctx context.Context, name string) error {
	resp, err := b.do(ctx, request{method: http.MethodDelete, key: b.prefix + name})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return drain(resp)
}
