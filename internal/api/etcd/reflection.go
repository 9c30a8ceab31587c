package etcd

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	v1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	v1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// registerReflection adds server reflection, in both versions that tools use.
func registerReflection(s *grpc.Server) {
	o := reflection.ServerOptions{Services: s, DescriptorResolver: &descriptors{}}
	v1.RegisterServerReflectionServer(s, reflection.NewServerV1(o))
	v1alpha.RegisterServerReflectionServer(s, reflection.NewServer(o))
}

// registered maps the paths by which etcd's .proto files import each other to
// those under which the generated code is registered. Without it a tool finds
// the services, but not the messages that they import.
var registered = map[string]string{
	"etcd/api/mvccpb/kv.proto":         "kv.proto",
	"etcd/api/authpb/auth.proto":       "auth.proto",
	"etcd/api/versionpb/version.proto": "version.proto",
}

// descriptors resolves the files of this program with their imports mended. It
// is built when the first tool asks.
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
				if to, ok := registered[dep]; ok {
					p.Dependency[i] = to
				}
			}
			set.File = append(set.File, p)
			return true
		})
		files, err := protodesc.FileOptions{AllowUnresolvable: true}.NewFiles(set)
		if err != nil {
			files = protoregistry.GlobalFiles // better incomplete than none
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
