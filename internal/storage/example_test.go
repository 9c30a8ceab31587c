package storage_test

import (
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/storage"
)

// A group of one on Raft's asynchronous storage writes: it elects itself, commits
// a proposal, and finds it again after a restart.
func ExampleDisk() {
	raft.SetLogger(&raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)})
	cfg := storage.Config{
		Dir: "data", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler),
	}
	disk, err := storage.Open(cfg)
	if err != nil {
		log.Fatal(err)
	}
	id := storage.Identity{Cluster: 1, Member: 1, Name: "solo"}
	if err := disk.Bootstrap(id, &raftpb.ConfState{Voters: []uint64{1}}); err != nil {
		log.Fatal(err)
	}
	serve(disk, "hello")
	if err := disk.Close(); err != nil {
		log.Fatal(err)
	}

	disk, err = storage.Open(cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer disk.Close()
	serve(disk, "again")
	// Output:
	// applied 2: hello
	// applied 2: hello
	// applied 4: again
}

// serve runs a member until it has applied the proposal.
func serve(disk *storage.Disk, proposal string) {
	node, err := raft.NewRawNode(&raft.Config{
		ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: disk,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 16, AsyncStorageWrites: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := node.Campaign(); err != nil {
		log.Fatal(err)
	}
	proposed := false
	for done := false; !done; {
		if !proposed && node.BasicStatus().RaftState == raft.StateLeader {
			proposed = node.Propose([]byte(proposal)) == nil
		}
		if !node.HasReady() {
			continue
		}
		for _, m := range node.Ready().Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				hs := &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
				if err := disk.Append(m.GetEntries(), hs, true); err != nil {
					log.Fatal(err)
				}
			case raft.LocalApplyThread:
				done = apply(m.GetEntries(), proposal) || done
			}
			for _, r := range m.GetResponses() {
				if err := node.Step(r); err != nil {
					log.Fatal(err)
				}
			}
		}
	}
}

func apply(entries []*raftpb.Entry, wait string) (found bool) {
	for _, e := range entries {
		if len(e.GetData()) > 0 {
			fmt.Printf("applied %d: %s\n", e.GetIndex(), e.GetData())
		}
		found = found || string(e.GetData()) == wait
	}
	return found
}
