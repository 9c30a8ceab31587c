package etcd

// The etcd API module omits these services, so they are generated from our own .proto files, using
// the descriptors of that module. This requires protoc 3.21, protoc-gen-go 1.36.11 and
// protoc-gen-go-grpc 1.6.2 on the PATH.

//go:generate go run ./protodesc etcd.protoset
//go:generate protoc @protoc.args
//go:generate rm etcd.protoset
