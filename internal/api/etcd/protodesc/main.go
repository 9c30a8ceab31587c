// Command protodesc writes the descriptors of the etcd API to the file given as its argument, for
// use with protoc's --descriptor_set_in. They are the descriptors linked into this module, so the
// generated services import exactly the messages that we link.
package main

import (
	"fmt"
	"os"
	"path"
	"strings"

	_ "go.etcd.io/etcd/api/v3/etcdserverpb" // registers rpc.proto
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "protodesc:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one argument (the file to write), got %d", len(args))
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := add(set, "rpc.proto", make(map[string]bool)); err != nil {
		return err
	}
	b, err := proto.Marshal(set)
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], b, 0o644)
}

// add appends a file's imports, followed by the file itself.
func add(set *descriptorpb.FileDescriptorSet, path string, seen map[string]bool) error {
	if seen[path] {
		return nil
	}
	seen[path] = true
	d, err := protoregistry.GlobalFiles.FindFileByPath(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return addFile(set, d, seen)
}

func addFile(
	set *descriptorpb.FileDescriptorSet, d protoreflect.FileDescriptor, seen map[string]bool,
) error {
	f := protodesc.ToFileDescriptorProto(d)
	for i, dep := range f.Dependency {
		// The files import each other by paths that include a directory, but they are linked under
		// paths without it.
		if strings.HasPrefix(dep, "etcd/api/") {
			f.Dependency[i] = path.Base(dep)
		}
		if err := add(set, f.Dependency[i], seen); err != nil {
			return err
		}
	}
	set.File = append(set.File, f)
	return nil
}
