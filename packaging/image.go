package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// user is whom the image runs as. A number needs no /etc/passwd, and Kubernetes can see that it
// is not root.
const user = 65532

// image writes a container image from nothing: the binary and a directory for the data. Docker,
// Podman and containerd load the file as it is.
func (b *build) image(t target) error {
	layer, err := b.layer(t)
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = t.os, t.arch, v1.Time{Time: b.when}
	file.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", user, user),
		WorkingDir: "/var/lib/leasehold",
		Entrypoint: []string{"/usr/bin/leasehold"},
		Cmd: []string{
			"serve", "--data-dir=/var/lib/leasehold", "--listen-client-urls=http://0.0.0.0:2379",
		},
		Volumes:      map[string]struct{}{"/var/lib/leasehold": {}},
		ExposedPorts: map[string]struct{}{"2379/tcp": {}, "2380/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "leasehold",
			"org.opencontainers.image.version":  b.version,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	if img, err = mutate.ConfigFile(img, file); err != nil {
		return err
	}
	tag, err := name.NewTag("leasehold:" + b.version)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(
		filepath.Join(b.out, fmt.Sprintf("leasehold_%s_%s.image.tar", b.version, t.arch)), tag, img)
}

func (b *build) layer(t target) (v1.Layer, error) {
	binary, err := os.ReadFile(b.binary(t))
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, h := range []tar.Header{
		{Name: "usr/", Mode: 0o755, Typeflag: tar.TypeDir},
		{Name: "usr/bin/", Mode: 0o755, Typeflag: tar.TypeDir},
		{Name: "usr/bin/leasehold", Mode: 0o755, Typeflag: tar.TypeReg, Size: int64(len(binary))},
		{Name: "var/", Mode: 0o755, Typeflag: tar.TypeDir},
		{Name: "var/lib/", Mode: 0o755, Typeflag: tar.TypeDir},
		{Name: "var/lib/leasehold/", Mode: 0o700, Typeflag: tar.TypeDir, Uid: user, Gid: user},
	} {
		h.ModTime = b.when
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(binary); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text.Bytes())), nil
	})
}
