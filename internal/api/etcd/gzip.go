package etcd

import (
	"io"
	"runtime"
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
)

func init() {
	encoding.RegisterCompressor(gzipCompressor{
		encoding.GetCompressor(gzip.Name), make(chan struct{}, (runtime.NumCPU()+1)/2),
	})
}

// gzipCompressor limits how many requests are decompressed concurrently. A kilobyte from a client
// that is not authenticated can cost milliseconds of CPU time and a megabyte of memory. gRPC stops
// after MaxRecvMsgSize decompressed bytes.
type gzipCompressor struct {
	encoding.Compressor
	slots chan struct{} // one token for each request being decompressed
}

// Decompress implements encoding.Compressor. gRPC closes the reader after it has read the whole
// message.
func (c gzipCompressor) Decompress(r io.Reader) (io.Reader, error) {
	c.slots <- struct{}{}
	release := sync.OnceFunc(func() { <-c.slots })
	z, err := c.Compressor.Decompress(r)
	if err != nil {
		release()
		return nil, err
	}
	return gzipReader{z, release}, nil
}

type gzipReader struct {
	io.Reader
	release func()
}

// Close implements io.Closer.
func (r gzipReader) Close() error {
	r.release()
	return nil
}
