package coordination

import (
	"testing"
	"time"

	"leasehold.dev/client/contrib/pool"
	"leasehold.dev/client/members"
	"leasehold.dev/client/queue"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/test/apptest"
)

// TestNothingForTerminals checks that escape sequences in IDs, owners, payloads and metadata, which
// other clients choose, do not reach the terminal.
func TestNothingForTerminals(t *testing.T) {
	const evil = apptest.Evil
	apptest.Harmless(t, map[string]app.Answer{
		"members": showMembers([]members.Member{{ID: evil, Metadata: []byte(evil)}}, 1),
		"joined": showMemberEvent(members.Event{
			Member: members.Member{ID: evil, Metadata: []byte(evil)},
		}),
		"items": showItems(nil, []queue.Info{{ID: evil, Worker: evil, Payload: []byte(evil)}}),
		"pool":  showPool(1, []pool.Entry{{ID: evil, Owner: evil, Remaining: time.Second}}),
	})
}
