package queue_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"leasehold.dev/client/queue"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// A worker writes its result together with the acknowledgment, so the result is written only once,
// although an item may be processed several times. An item whose processing fails is retried.
func ExampleQueue() {
	c, stop := inprocess.Client()
	defer stop()
	ctx := context.Background()
	q := queue.New(c, "mail", queue.Config{TTL: 10 * time.Second, MaxTries: 2})
	for _, to := range []string{"ann", "nobody", "bob"} {
		if _, err := q.Push(ctx, []byte(to), 0); err != nil {
			log.Fatal(err)
		}
	}
	err := q.Work(ctx, queue.Work{
		Idle:  true, // return when there is nothing to claim
		Delay: -1,
		Do: func(ctx context.Context, i *queue.Item) error {
			to := string(i.Payload())
			if to == "nobody" {
				return fmt.Errorf("try %d: no such person", i.Tries())
			}
			fmt.Println("to", to)
			return i.AckWith(ctx, store.Put{Key: "sent/" + to})
		},
		Failed: func(_ *queue.Item, err error) { fmt.Println(err) },
	})
	if err != nil {
		log.Fatal(err)
	}
	n, err := q.Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n.Ready, "left to do,", n.Dead, "dead")
	dead, err := q.Dead(ctx, "", 10)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("the first is %q\n", dead[0].Payload)
	// Output:
	// to ann
	// try 1: no such person
	// try 2: no such person
	// to bob
	// 0 left to do, 1 dead
	// the first is "nobody"
}
