package server

import (
	"context"
	"path/filepath"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"leasehold.dev/internal/audit"
)

// BenchmarkAudit is what the audit log adds to a put: at its level, and below it.
func BenchmarkAudit(b *testing.B) {
	for _, level := range audit.Levels[:2] {
		b.Run(level, func(b *testing.B) {
			o := audit.Defaults()
			o.File, o.Level = filepath.Join(b.TempDir(), "audit"), level
			log, err := audit.Open(o)
			if err != nil {
				b.Fatal(err)
			}
			a := &auditor{log: log}
			if level == "writes" {
				a.level = auditWrites
			}
			ctx, end := context.WithCancel(b.Context())
			done := make(chan struct{})
			go func() { defer close(done); log.Run(ctx, func(err error) { b.Error(err) }) }()
			req := &pb.PutRequest{Key: []byte("app/orders/00000042"), Value: make([]byte, 256)}
			resp := &pb.PutResponse{Header: &pb.ResponseHeader{Revision: 7}}
			info := &grpc.UnaryServerInfo{FullMethod: pb.KV_Put_FullMethodName}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.unary(ctx, req, info, func(context.Context, any) (any, error) {
					return resp, nil
				}); err != nil {
					b.Fatal(err)
				}
			}
			end()
			<-done
		})
	}
}
