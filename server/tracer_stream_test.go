package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/trace/tracetest"
	"leasehold.dev/test/virtual"
)

type traceKey struct{}

// Goal: requests over a stream are part of the traces of the contexts that they are made with,
// whichever way they go, and are ended once. Method: the Go client, over a connection without
// HTTP/2 and over gRPC, with a function that tells of traces.
func TestTraceOfStream(t *testing.T) { virtual.Test(t, testTraceOfStream) }

func testTraceOfStream(t *testing.T) {
	for _, grpc := range []bool{false, true} {
		c := &tracetest.Collector{}
		cfg := traced(t, testConfig(shortDir(t)), c)
		r := run(t, cfg)
		lh, err := client.New(client.Config{
			Endpoints: []string{r.cfg.URLs.ListenClient[0].String()}, GRPC: grpc,
			Dial: virtual.DialEndpoint,
			TraceParent: func(ctx context.Context) string {
				text, _ := ctx.Value(traceKey{}).(string)
				return text
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		with := func(n int, flags string) context.Context {
			return context.WithValue(t.Context(), traceKey{}, parentNumber(n, flags))
		}
		granted, err := lh.GrantOnly(with(1, "01"), client.Grant{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		ref := leases.Ref{ID: granted.ID, Token: granted.Token}
		_, put := lh.Put(with(2, "01"), store.Put{Key: "k"})
		_, get := lh.Get(with(3, "01"), "k")
		_, described := lh.Describe(with(4, "01"), ref)
		if err := errors.Join(put, get, described, lh.Revoke(with(5, "01"), ref)); err != nil {
			t.Error(err)
		}
		if _, err := lh.Describe(with(6, "01"), ref); !errors.Is(err, client.ErrLeaseNotFound) {
			t.Error(err)
		}
		if _, err := lh.Put(with(7, "00"), store.Put{Key: "k"}); err != nil {
			t.Error(err)
		}
		awaitCalls(t, c, 6, "")
		if err := errors.Join(lh.Close(), r.stop()); err != nil {
			t.Error(err)
		}
		all := byTrace(t, c)
		const open = "leasehold.v1.StreamService/Open/"
		written := []string{"admission", "commit", "log sync", "apply", "answer"}
		checkTree(t, all[1], open+"grant", written...)
		checkTree(t, all[2], open+"put", written...)
		checkTree(t, all[3], open+"read_range", "confirm", "answer")
		checkTree(t, all[4], open+"describe", "confirm", "answer")
		checkTree(t, all[5], open+"revoke", written...)
		checkTree(t, all[6], open+"describe", "confirm", "answer")
		if code := all[6][open+"describe"].Attributes["rpc.grpc.status_code"]; code != int64(5) {
			t.Errorf("the code of what is not found is %v", code)
		}
		if len(all) != 6 {
			t.Errorf("gRPC %v: %d traces: %v", grpc, len(all), all)
		}
	}
}
