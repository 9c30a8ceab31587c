package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

// MemberPages fetches pages of members, such as /metrics.
type MemberPages struct {
	client *http.Client
	limit  time.Duration // timeout for one page
	secure bool          // use HTTPS for endpoints without a scheme
}

// NewMemberPages returns MemberPages with a timeout for each page.
func NewMemberPages(secure *tls.Config, limit time.Duration) MemberPages {
	return MemberPages{
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: secure}},
		limit:  limit, secure: secure != nil,
	}
}

// maxPage is the maximum size of a page in bytes.
const maxPage = 64 << 20

// Get fetches a page of a member. A page that reports an unhealthy member is not an error.
func (p *MemberPages) Get(x *Member, path string) ([]byte, error) {
	base := x.URL
	switch {
	case base != "":
	case p.secure:
		base = "https://" + x.Endpoint
	default:
		base = "http://" + x.Endpoint
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err == nil && resp.StatusCode != http.StatusOK &&
		resp.StatusCode != http.StatusServiceUnavailable {
		return nil, fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return text, err
}
