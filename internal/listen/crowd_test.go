package listen

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// waits are calls of one connection that wait for room.
type waits struct {
	*reader
	refused chan error
}

// newWaits returns a connection that may leave no more unread.
func newWaits(all *Answers) *waits {
	return &waits{newReader(all, maxUnread), make(chan error, maxWaiting/waitCost+100)}
}

// call makes calls that wait until the context ends.
func (w *waits) call(ctx context.Context, calls int, request any) {
	for range calls {
		go func() {
			if _, err := w.account.enter(ctx, 0, request); ctx.Err() == nil {
				w.refused <- err
			}
		}()
	}
	synctest.Wait()
}

// Goal: the calls that wait have a bound over all connections, and the connection that has most of
// them is refused its newest; nothing stays counted. Method: one connection uses up the bound, and
// then two others make a few calls, one of them with a large request.
func TestCallsThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		all := NewAnswers(slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		greedy, modest, large := newWaits(all), newWaits(all), newWaits(all)
		first := *greedy
		first.refused = make(chan error, 1)
		first.call(ctx, 1, nil)
		greedy.call(ctx, maxWaiting/waitCost-1, nil)
		if n := len(greedy.refused); n != 0 || all.waits != maxWaiting {
			t.Errorf("%d calls are refused when %d bytes wait", n, all.waits)
		}
		modest.call(ctx, 10, nil)
		large.call(ctx, 1, make(sized, megabyte))
		const others = 10 + 1 + megabyte/waitCost
		wrong := len(first.refused) + len(modest.refused) + len(large.refused)
		if len(greedy.refused) != others || wrong > 0 {
			t.Errorf("refused: %d of the greedy one, %d its first, %d of the modest one, %d large",
				len(greedy.refused), len(first.refused), len(modest.refused), len(large.refused))
		}
		greedy.call(ctx, 1, nil)
		if len(greedy.refused) != others+1 || all.waits != maxWaiting {
			t.Errorf("refused: %d; %d bytes wait", len(greedy.refused), all.waits)
		}
		if err := <-greedy.refused; !errors.Is(rpctypes.Error(err), rpctypes.ErrTooManyRequests) {
			t.Errorf("clientv3 does not know %v", err)
		}
		if n := strings.Count(log.String(), "refused a call"); n != 1 {
			t.Errorf("%d lines of the log are about it:\n%s", n, log.String())
		}
		cancel()
		synctest.Wait()
		if all.waits != 0 || len(all.crowds) != 0 || greedy.account.waits != 0 {
			t.Errorf("%d bytes of %d connections still wait", all.waits, len(all.crowds))
		}
	})
}

// Goal: calls that wait are counted until they have room, or their connection is closed. Method: as
// many as may wait, with room for one and then none.
func TestCallsThatWaitNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		a, b := newReader(all, 0), newWaits(all)
		full := a.account.reserve(maxUnread)
		w := &waits{a, make(chan error, 10)}
		w.call(t.Context(), 3, nil)
		b.call(t.Context(), 2, nil)
		if all.waits != 5*waitCost {
			t.Errorf("%d bytes wait", all.waits)
		}
		full.release()
		synctest.Wait()
		if n := len(w.refused); n != 3 || all.waits != 2*waitCost {
			t.Errorf("%d calls have room, %d bytes wait", n, all.waits)
		}
		b.account.close()
		synctest.Wait()
		if n := len(b.refused); n != 2 || all.waits != 0 || len(all.crowds) != 0 {
			t.Errorf("%d calls of a closed connection ended, %d bytes wait", n, all.waits)
		}
	})
}
