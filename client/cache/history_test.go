package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// operation is a read, or a write, of a register.
type operation struct {
	key   string
	write bool
	value string // written; empty for a deletion
}

// registers is the model of some keys: each has the value that was written last.
var registers = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := make(map[string][]porcupine.Operation)
		for _, o := range history {
			key := o.Input.(operation).key
			by[key] = append(by[key], o)
		}
		var out [][]porcupine.Operation
		for _, list := range by {
			out = append(out, list)
		}
		return out
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		if o := input.(operation); o.write {
			return true, o.value
		}
		return output == state, state
	},
}

// recorder records a history.
type recorder struct {
	begin time.Time
	mu    sync.Mutex
	all   []porcupine.Operation
}

// do records an operation. One whose outcome is not known may take effect at any time later,
// or never.
func (r *recorder) do(who int, o operation, f func() (string, error)) error {
	call := time.Since(r.begin)
	value, err := f()
	op := porcupine.Operation{
		ClientId: who, Input: o, Output: value, Call: int64(call), Return: int64(time.Since(r.begin)),
	}
	if err != nil {
		if !o.write {
			return err
		}
		op.Return = math.MaxInt64
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, op)
	if errors.Is(err, client.ErrUnknownOutcome) {
		return nil
	}
	return err
}

// TestHistory: cached reads, and writes by others, are linearizable while leaders change and
// streams break (C1).
func TestHistory(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 3)
		const writers, writes, keys = 3, 120, 3
		r := &recorder{begin: time.Now()}
		key := func(i int) string { return fmt.Sprint("h/", i%keys) }
		ctx := ask(t)
		var readers, writing sync.WaitGroup
		stop, kick := make(chan struct{}), make(chan struct{}, 1)
		for i, m := range cl {
			l := m.Line()
			c := open(t, connect(t, l.Endpoint(), cl.endpoints()[(i+1)%3]), "h/", cache.Options{})
			readers.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-kick:
					case <-stop:
						return
					}
					if n%50 == 49 {
						l.Break()
					}
					for k := range 2 * keys {
						readOnce(ctx, t, r, readOf{who: i, cache: c, key: key(k)})
					}
				}
			})
		}
		for i := range writers {
			w := connect(t, cl.endpoints()...)
			writing.Go(func() {
				for n := range writes {
					o := operation{key: key(n + i), write: true, value: fmt.Sprint(i, ".", n)}
					if n%10 == 9 {
						o.value = ""
					}
					err := r.do(10+i, o, func() (string, error) { return "", writeOnce(ctx, w, o) })
					if err != nil {
						t.Errorf("write: %v", err)
					}
					for range 2 {
						select {
						case kick <- struct{}{}:
						default:
						}
					}
					if i == 0 && n%30 == 29 {
						moveLeader(t, cl.etcd(t))
					}
				}
			})
		}
		writing.Wait()
		close(stop)
		readers.Wait()
		if got := porcupine.CheckOperationsTimeout(registers, r.all, time.Minute); got != porcupine.Ok {
			t.Errorf("%d operations: %v", len(r.all), got)
		}
		t.Logf("%d operations", len(r.all))
	})
}

type readOf struct {
	who   int
	cache *cache.Cache
	key   string
}

func readOnce(ctx context.Context, t *testing.T, r *recorder, of readOf) {
	err := r.do(of.who, operation{key: of.key}, func() (string, error) {
		kv, _, err := of.cache.Get(ctx, of.key)
		return string(kv.Value), err
	})
	if err != nil {
		t.Errorf("read: %v", err)
	}
}

func writeOnce(ctx context.Context, c *client.Client, o operation) error {
	if o.value == "" {
		_, err := c.Delete(ctx, store.Delete{Key: o.key})
		return err
	}
	_, err := c.Put(ctx, store.Put{Key: o.key, Value: []byte(o.value)})
	return err
}
