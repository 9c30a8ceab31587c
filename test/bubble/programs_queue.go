package bubble

import (
	"errors"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/queue"
)

const queueName = "work"

func (p *process) queue() *queue.Queue {
	return queue.New(p.c, queueName, queue.Config{
		TTL: 2 * time.Second, MaxTries: 1 << 30, Worker: p.on.Name,
	})
}

// push adds items to a queue.
func push(p *process) error {
	ctx, cancel := p.within(20 * time.Second)
	defer cancel()
	item := p.w.unique()
	if _, err := p.queue().Push(ctx, []byte(item), 0); err != nil {
		return err
	}
	defer p.sleep(0, 2*time.Second)
	p.w.h.push(item)
	p.w.h.Count("items pushed")
	return nil
}

// work processes queue items and returns some of them to the queue.
func work(p *process) error {
	ctx, cancel := p.within(time.Minute)
	defer cancel()
	i, err := p.queue().Claim(ctx)
	if err != nil {
		return err
	}
	item := string(i.Payload())
	b := p.w.h.Hold("item "+item, p, uint64(i.Token()), i.Lease().Err)
	p.wait(i.Context(), p.between(0, time.Second))
	b.Release()
	if p.intn(5) == 0 {
		if p.intn(2) == 0 {
			i.Close()
			return nil
		}
		return i.Nack(p.ctx, p.between(0, time.Second))
	}
	p.w.h.done(item)
	p.w.h.Count("items done")
	ctx, cancel = p.within(10 * time.Second)
	defer cancel()
	if err := i.Ack(ctx); err != nil && !errors.Is(err, client.ErrLost) {
		return err
	}
	return nil
}
