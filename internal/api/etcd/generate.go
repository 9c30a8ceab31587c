package etcd

// The services that etcd's api module leaves out are generated from our own
// .proto files, against the descriptors of that module. Needed on the PATH:
// protoc 3.21, protoc-gen-go 1.36.11 and protoc-gen-go-grpc 1.6.2.

//go:generate go run ./protodesc etcd.protoset
//go:generate protoc @protoc.args
//go:generate rm etcd.protoset
