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

// user is the ID of the user that the image runs as. A numeric ID works without /etc/passwd, and
// shows Kubernetes that the user is not root.
const user = 65532

// image writes a container image from scratch. It contains the binary, the licenses and a directory
// for the data. Docker, Podman and containerd can load the file without conversion.
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
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, f := range []struct {
		name, source string // a directory has no source
		mode         int64
		user         int
	}{
		{"usr/", "", 0o755, 0},
		{"usr/bin/", "", 0o755, 0},
		{"usr/bin/leasehold", b.binary(t), 0o755, 0},
		{"usr/share/", "", 0o755, 0},
		{"usr/share/doc/", "", 0o755, 0},
		{docDir[1:] + "/", "", 0o755, 0},
		{docDir[1:] + "/copyright", filepath.Join(b.root, "LICENSE"), 0o644, 0},
		{docDir[1:] + "/" + licencesName, b.licencesFile(t), 0o644, 0},
		{"var/", "", 0o755, 0},
		{"var/lib/", "", 0o755, 0},
		{"var/lib/leasehold/", "", 0o700, user},
	} {
		h := &tar.Header{
			Name: f.name, Mode: f.mode, Typeflag: tar.TypeDir, Uid: f.user, Gid: f.user,
			ModTime: b.when,
		}
		var data []byte
		if f.source != "" {
			var err error
			if data, err = os.ReadFile(f.source); err != nil {
				return nil, err
			}
			h.Typeflag, h.Size = tar.TypeReg, int64(len(data))
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text.Bytes())), nil
	})
}
