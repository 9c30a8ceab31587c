package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/relay"
	"leasehold.dev/internal/wire"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/inprocess"
)

// running is a relay that a test has started.
type running struct {
	endpoint string
	stop     context.CancelFunc
	done     chan error
}

// end stops the relay, as a signal would, and waits for it.
func (r *running) end(t testing.TB) {
	t.Helper()
	r.stop()
	if err := <-r.done; err != nil {
		t.Error("relay:", err)
	}
	r.done <- nil
}

// start starts a relay for the given members and waits until it is serving.
func start(t testing.TB, cfg relay.Config) *running {
	t.Helper()
	path := filepath.Join(inprocess.Dir(t), "r")
	cfg.Listen = []url.URL{{Scheme: "unix", Path: path}}
	if cfg.Host == nil {
		cfg.Host = inprocess.Host(t)
	}
	return run(t, cfg, "unix:"+path)
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestClientThroughRelay checks that leasehold.v1 works through a relay: keep-alives, watches and
// locks.
func TestClientThroughRelay(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		r := start(t, relay.Config{Endpoints: inprocess.Endpoints(m)})
		a := inprocess.Connect(t, client.Config{}, r.endpoint)
		b := inprocess.Connect(t, client.Config{}, r.endpoint)
		ctx := soon(t)
		l, err := a.Grant(ctx, client.Grant{TTL: 12 * time.Second, Name: "n"})
		if err != nil {
			t.Fatal(err)
		}
		before := l.ValidUntil()
		w, err := b.Watch(ctx, store.Watch{Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		value := bytes.Repeat([]byte("v"), 1<<20) // many pieces
		if _, err := a.Put(ctx, store.Put{Key: "k", Value: value, Lease: l.ID()}); err != nil {
			t.Fatal(err)
		}
		u, err := w.Next(ctx)
		if err != nil || len(u.Events) != 1 || !bytes.Equal(u.Events[0].KV.Value, value) {
			t.Fatalf("the watch returned %d events, %v", len(u.Events), err)
		}
		session := func(c *client.Client) *client.Session {
			s, err := c.Open(ctx, client.Grant{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		held, err := lock.NewMutex(session(a), "lock").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got, other := make(chan error, 1), lock.NewMutex(session(b), "lock")
		go func() {
			h, err := other.Lock(ctx)
			if err == nil {
				err = h.Release(ctx)
			}
			got <- err
		}()
		if err := held.Release(ctx); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
		harness.Eventually(t, "a renewal", func() error {
			if l.Err() != nil {
				t.Fatal(l.Err())
			}
			if !l.ValidUntil().After(before) {
				return errors.New("the lease was not renewed")
			}
			return nil
		})
		if _, err := b.Grant(ctx, client.Grant{TTL: time.Minute, Name: "n"}); err == nil {
			t.Error("a name was granted twice")
		}
	})
}

// TestRelayStops checks that when a relay stops, its clients reconnect elsewhere without losing a
// lease, an event or a write. Two relays stop in turn. One client starts at a member.
func TestRelayStops(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		cfg := relay.Config{Endpoints: inprocess.Endpoints(m)}
		first, second := start(t, cfg), start(t, cfg)
		ctx := soon(t)
		c := inprocess.Connect(t, client.Config{}, first.endpoint, second.endpoint)
		l, err := c.Grant(ctx, client.Grant{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		w, err := c.Watch(ctx, store.Watch{Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		stop := make(chan struct{})
		put := make(chan int)
		go func() {
			n := 0
			for ; ctx.Err() == nil; n++ {
				select {
				case <-stop:
					put <- n
					return
				default:
				}
				if _, err := c.Put(ctx, store.Put{Key: "k", Value: fmt.Append(nil, n)}); err != nil {
					t.Errorf("put %d: %v", n, err)
				}
			}
			put <- n
		}()
		now, err := c.Connection(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if now.Endpoint == first.endpoint {
			first.end(t)
		} else {
			second.end(t)
		}
		<-now.Changed
		if now, err = c.Connection(ctx); err != nil {
			t.Fatal(err)
		}
		close(stop)
		n := <-put
		for i := range n {
			u, err := w.Next(ctx)
			if err != nil || len(u.Events) != 1 || string(u.Events[0].KV.Value) != fmt.Sprint(i) {
				t.Fatalf("event %d: %v, %v", i, u, err)
			}
		}
		if !l.Valid() || l.Err() != nil {
			t.Error("the lease is lost:", l.Err())
		}
	})
}

// TestMemberStops checks that when a member stops, the relay continues its calls at another member,
// like any client.
func TestMemberStops(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 3)
		r := start(t, relay.Config{Endpoints: inprocess.Endpoints(m)})
		c := inprocess.Connect(t, client.Config{}, r.endpoint)
		ctx := soon(t)
		l, err := c.Grant(ctx, client.Grant{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range m {
			if i == 2 {
				break // a majority remains
			}
			x.End()
			if _, err := c.Put(ctx, store.Put{Key: "k", Value: []byte(x.Name())}); err != nil {
				t.Fatal(err)
			}
			x.Start()
			x.Await()
		}
		if !l.Valid() {
			t.Error("the lease is lost:", l.Err())
		}
	})
}

// TestSilentMember checks that a relay makes no promises of its own. If the member becomes
// unresponsive, the lease ends no later than without a relay.
func TestSilentMember(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		line := m[0].Line()
		r := start(t, relay.Config{Endpoints: []string{line.Endpoint()}})
		c := inprocess.Connect(t, client.Config{}, r.endpoint)
		ctx := soon(t)
		const ttl = 10 * time.Second
		l, err := c.Grant(ctx, client.Grant{TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		before := l.ValidUntil()
		harness.Eventually(t, "a renewal", func() error {
			if !l.ValidUntil().After(before) {
				return errors.New("the lease was not renewed")
			}
			return nil
		})
		line.SetFrozen(true)
		frozen := time.Now()
		defer line.SetFrozen(false)
		<-l.Context().Done()
		// The member may still have answered requests that were sent before it became unresponsive.
		if end := l.ValidUntil(); end.After(frozen.Add(ttl)) {
			t.Errorf("the lease was valid until %v after the member fell silent", end.Sub(frozen))
		}
	})
}

// TestEtcdThroughRelay checks that etcd's clients work through a relay.
func TestEtcdThroughRelay(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		r := start(t, relay.Config{Endpoints: inprocess.Endpoints(m)})
		c := inprocess.Etcd(t, r.endpoint)
		ctx := soon(t)
		w := c.Watch(clientv3.WithRequireLeader(ctx), "k", clientv3.WithPrefix())
		g, err := c.Grant(ctx, 60)
		if err != nil {
			t.Fatal(err)
		}
		alive, err := c.KeepAlive(ctx, g.ID)
		if err != nil {
			t.Fatal(err)
		}
		if a := <-alive; a == nil || a.TTL != 60 {
			t.Errorf("response to a renewal: %v", a)
		}
		if _, err := c.Put(ctx, "k1", "v", clientv3.WithLease(g.ID)); err != nil {
			t.Fatal(err)
		}
		got, err := c.Get(ctx, "k1")
		if err != nil || len(got.Kvs) != 1 || got.Kvs[0].Lease != int64(g.ID) {
			t.Fatalf("get: %v, %v", got, err)
		}
		for x := range w {
			if len(x.Events) > 0 && string(x.Events[0].Kv.Key) == "k1" {
				break
			}
			if x.Err() != nil {
				t.Fatal(x.Err())
			}
		}
		list, err := c.MemberList(ctx)
		path := strings.TrimPrefix(m[0].Endpoint(), "unix:")
		if err != nil || len(list.Members) != 1 || list.Members[0].ClientURLs[0] != "unix://"+path {
			t.Errorf("members: %v, %v", list, err)
		}
		s, err := concurrency.NewSession(c)
		if err != nil {
			t.Fatal(err)
		}
		mu := concurrency.NewMutex(s, "lock")
		if err := mu.Lock(ctx); err != nil {
			t.Fatal(err)
		}
		if err := mu.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	})
}

// TestInvalidMethodName checks that a call that a relay cannot carry fails without affecting other
// clients. Here the method name is not valid UTF-8.
func TestInvalidMethodName(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		r := start(t, relay.Config{Endpoints: inprocess.Endpoints(m)})
		conn, ctx := dial(t, r.endpoint), soon(t)
		s, err := pb.NewStreamServiceClient(conn).Open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := s.Header()
			for err == nil {
				_, err = s.Recv()
			}
			ended <- err
		}()
		for _, name := range []string{"/\xff/m", "/leasehold.v1.LeaseService/\xff"} {
			err := conn.Invoke(ctx, name, &pb.RenewRequest{}, &pb.RenewResponse{})
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("%q: %v", name, err)
			}
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, io.EOF) {
			t.Errorf("another client's stream ended with %v", err)
		}
	})
}

// TestDirectStreams checks that when a relay stops, a stream without HTTP/2 ends with an error that
// makes its client reconnect elsewhere. One stream has received a response, another has sent
// nothing, and on a third connection only the stream's name has been sent.
func TestDirectStreams(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		r := start(t, relay.Config{Endpoints: inprocess.Endpoints(m)})
		ctx := soon(t)
		connect := func() net.Conn {
			c, err := inprocess.Dialer(t)(ctx, r.endpoint)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		open := func(method string) grpc.ClientStream {
			s, err := direct.Open(ctx, connect(), method, wire.Codec())
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		unknown := open("/leasehold.v1.LeaseService/Grant")
		if err := unknown.RecvMsg(new(pb.ServerMessage)); status.Code(err) != codes.Unimplemented {
			t.Errorf("method that is not a stream: %v", err)
		}
		const method = pb.StreamService_Open_FullMethodName
		asked, silent := open(method), open(method)
		begun := connect()
		if _, err := fmt.Fprintf(begun, "%s %s\n", direct.Protocol, method); err != nil {
			t.Fatal(err)
		}
		err := asked.SendMsg(&pb.ClientMessage{Requests: []*pb.Request{{
			Id: 1, Body: &pb.Request_Renew{Renew: &pb.RenewRequest{}},
		}}})
		answer := new(pb.ServerMessage)
		for err == nil && len(answer.Responses) == 0 {
			err = asked.RecvMsg(answer)
		}
		if err != nil || answer.Responses[0].GetRenew() == nil {
			t.Fatalf("response to a request: %v, %v", answer, err)
		}
		r.end(t)
		for name, s := range map[string]grpc.ClientStream{"asked": asked, "silent": silent} {
			var err error
			for err == nil {
				err = s.RecvMsg(new(pb.ServerMessage))
			}
			if status.Code(err) != codes.Unavailable {
				t.Errorf("stream %s: ended with %v", name, err)
			}
		}
		// The connection is closed by now. It may have been reset if the relay had not read
		// everything.
		if err := begun.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(begun); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("connection without a stream: ended with %v", err)
		}
	})
}

// TestTooLargeRequest checks that a request above the relay's limit is rejected and does not hang.
func TestTooLargeRequest(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		r := start(t, relay.Config{Endpoints: inprocess.Endpoints(m)})
		put := &etcdserverpb.PutRequest{Key: []byte("k"), Value: make([]byte, 4<<20)}
		_, err := etcdserverpb.NewKVClient(dial(t, r.endpoint)).Put(soon(t), put)
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("request of 4 MiB: %v", err)
		}
	})
}

// TestSilentWhileSending checks that a relay abandons its member if the member becomes unresponsive
// while the relay sends it more requests than it can buffer.
func TestSilentWhileSending(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		line := m[0].Line()
		r := start(t, relay.Config{Endpoints: []string{line.Endpoint()}})
		conn := dial(t, r.endpoint)
		health := grpc_health_v1.NewHealthClient(dial(t, r.endpoint))
		line.SetFrozen(true)
		defer line.SetFrozen(false)
		ctx, cancel := context.WithCancel(soon(t))
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		for range 40 {
			all.Go(func() {
				put := &etcdserverpb.PutRequest{Key: []byte("k"), Value: make([]byte, 1<<20)}
				_, err := etcdserverpb.NewKVClient(conn).Put(ctx, put)
				if status.Code(err) != codes.Unavailable {
					t.Errorf("put to a silent member: %v", err)
				}
			})
		}
		harness.Eventually(t, "the relay has no member", func() error {
			h, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
			if err == nil && h.Status != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
				err = errors.New(h.Status.String())
			}
			return err
		})
		all.Wait()
	})
}

// TestLargeAnswersAtOnce checks that a relay does not disconnect clients that are still reading
// large responses, even if the responses together exceed its usual limit.
func TestLargeAnswersAtOnce(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		r := start(t, relay.Config{Endpoints: inprocess.Endpoints(m)})
		kv, ctx := inprocess.Etcd(t, m[0].Endpoint()), soon(t)
		for i := range 10 {
			if _, err := kv.Put(ctx, fmt.Sprint("k", i), string(make([]byte, 1<<20))); err != nil {
				t.Fatal(err)
			}
		}
		all := &etcdserverpb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")}
		var calls []grpc.ClientStream
		for range 5 {
			s, err := dial(t, r.endpoint).NewStream(ctx, &grpc.StreamDesc{ServerStreams: true},
				etcdserverpb.KV_Range_FullMethodName, grpc.MaxCallRecvMsgSize(1<<30))
			if err == nil {
				err = errors.Join(s.SendMsg(all), s.CloseSend())
			}
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, s)
		}
		for _, s := range calls {
			// the response has begun but is not completely read
			if _, err := s.Header(); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range calls {
			got := new(etcdserverpb.RangeResponse)
			if err := s.RecvMsg(got); err != nil || len(got.Kvs) != 10 {
				t.Errorf("received %d keys, %v", len(got.Kvs), err)
			}
		}
	})
}

func dial(t testing.TB, endpoint string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:"+endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(inprocess.Dialer(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
