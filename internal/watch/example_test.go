package watch_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"leasehold.dev/internal/watch"
)

// change is an event in a minimal store.
type change struct {
	key string
	rev int64
}

func (c change) Key() string     { return c.key }
func (c change) Revision() int64 { return c.rev }
func (c change) IsDelete() bool  { return false }
func (c change) Size() int       { return len(c.key) }

// log is a view of the store. It contains one change for each revision, starting at 1.
type log []change

func (l log) Revision() int64  { return int64(len(l)) }
func (l log) Compacted() int64 { return 0 }

func (l log) Events(key, _ string, from int64, _ int) (out []change, next int64, err error) {
	for _, c := range l[min(from-1, l.Revision()):] {
		if c.key == key {
			out = append(out, c)
		}
	}
	return out, l.Revision() + 1, nil
}

// A watcher that starts at revision 1 receives the history, followed by new events.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var current atomic.Pointer[log]
	current.Store(&log{{"door", 1}, {"window", 2}, {"door", 3}})
	hub := watch.New(func() watch.History[change] { return *current.Load() }, watch.Options{})
	go func() { _ = hub.Run(ctx) }()

	stream := hub.NewStream()
	defer stream.Close()
	if _, err := stream.Watch(watch.Request{Key: "door", From: 1}); err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		batch, err := stream.Next(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(batch.Kind, batch.Revision, batch.Events)
		if batch.Kind == watch.Changed && batch.Revision == 3 {
			// The writer makes the new view visible before it publishes.
			written := change{"door", 4}
			view := append(*current.Load(), written)
			current.Store(&view)
			hub.Publish(written.rev, []change{written})
		}
	}
	// Output:
	// created 3 []
	// changed 3 [{door 1} {door 3}]
	// changed 4 [{door 4}]
}
