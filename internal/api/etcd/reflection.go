package etcd

import (
	"path"
	"strings"
	"sync"

	"google.golang.org/grpc/reflection"
	v1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	v1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// registerReflection registers server reflection in both versions that tools use.
func registerReflection(s reflection.GRPCServer) {
	o := reflection.ServerOptions{Services: s, DescriptorResolver: &descriptors{}}
	v1.RegisterServerReflectionServer(s, reflection.NewServerV1(o))
	v1alpha.RegisterServerReflectionServer(s, reflection.NewServer(o))
}

// registered returns the path under which a file is registered. The .proto files of etcd import
// each other by paths that include the directory, but the generated code is registered without it.
// Without this correction, tools find the services but not the messages that they import.
func registered(file string) string {
	if strings.HasPrefix(file, "etcd/api/") {
		return path.Base(file)
	}
	return file
}

// descriptors resolves the files of this program with corrected imports. The files are loaded on
// first use.
type descriptors struct {
	once  sync.Once
	files *protoregistry.Files
}

func (d *descriptors) load() *protoregistry.Files {
	d.once.Do(func() {
		set := &descriptorpb.FileDescriptorSet{}
		protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
			p := protodesc.ToFileDescriptorProto(f)
			for i, dep := range p.Dependency {
				p.Dependency[i] = registered(dep)
			}
			set.File = append(set.File, p)
			return true
		})
		files, err := protodesc.FileOptions{AllowUnresolvable: true}.NewFiles(set)
		if err != nil {
			files = protoregistry.GlobalFiles // an incomplete result is better than none
		}
		d.files = files
	})
	return d.files
}

// FindFileByPath implements protodesc.Resolver.
func (d *descriptors) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	return d.load().FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (d *descriptors) FindDescriptorByName(
	name protoreflect.FullName,
) (protoreflect.Descriptor, error) {
	return d.load().FindDescriptorByName(name)
}
