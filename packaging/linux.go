package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // package formats
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

const (
	docDir       = "/usr/share/doc/leasehold"
	licencesName = "third-party-licenses.txt"
)

func (b *build) content(source, at string, mode fs.FileMode) *files.Content {
	return &files.Content{
		Source: source, Destination: at,
		FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: b.when},
	}
}

// packages writes a Debian and an RPM package for a target.
func (b *build) packages(t target, docs files.Contents) error {
	for _, format := range []string{"deb", "rpm"} {
		conf := b.content("files/leasehold.yaml", "/etc/leasehold/leasehold.yaml", 0o644)
		conf.Type = files.TypeConfigNoReplace
		contents := files.Contents{
			b.content(b.binary(t), "/usr/bin/leasehold", 0o755),
			b.content("files/leasehold.service", "/usr/lib/systemd/system/leasehold.service", 0o644),
			b.content("files/sysusers.conf", "/usr/lib/sysusers.d/leasehold.conf", 0o644),
			b.content("../LICENSE", docDir+"/copyright", 0o644),
			b.content(b.licencesFile(t), docDir+"/"+licencesName, 0o644),
			b.content("monitoring/alerts.yaml", "/usr/share/leasehold/alerts.yaml", 0o644),
			conf,
		}
		dashboards, err := filepath.Glob("monitoring/dashboards/*.json")
		if err != nil {
			return err
		}
		for _, d := range dashboards {
			contents = append(contents,
				b.content(d, "/usr/share/leasehold/dashboards/"+filepath.Base(d), 0o644))
		}
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: "leasehold", Arch: t.arch, Platform: "linux", Version: b.version,
			Section: "admin", Priority: "optional", MTime: b.when, License: "Apache-2.0",
			Maintainer: "The Leasehold authors <packages@leasehold.dev>", Vendor: "Leasehold",
			Homepage: "https://leasehold.dev",
			Description: "Lease service that speaks the etcd v3 API\n" +
				"It grants leases, stores the keys attached to them, and notifies\n" +
				"watchers when a lease ends: for locks, elections, membership and caches.",
			Overridables: nfpm.Overridables{
				Contents: append(contents, docs...),
				Scripts: nfpm.Scripts{
					PostInstall: "files/postinstall.sh", PreRemove: "files/preremove.sh",
					PostRemove: "files/postremove.sh",
				},
				RPM: nfpm.RPM{BuildHost: "leasehold.dev"},
				// Without systemd, the scripts need useradd.
				Recommends: []string{"systemd"},
			},
		})
		if err := b.write(info, format); err != nil {
			return err
		}
	}
	return nil
}

// write writes a package to a file.
func (b *build) write(info *nfpm.Info, format string) error {
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	p, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("leasehold_%s_%s.%s", b.version, info.Arch, format)
	f, err := os.Create(filepath.Join(b.out, name))
	if err != nil {
		return err
	}
	if err := p.Package(info, f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.Close()
}
