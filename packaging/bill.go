package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// component is a module in a CycloneDX bill of materials.
type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref,omitempty"`
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"purl,omitempty"`
}

// bill writes a CycloneDX file that lists the modules in a binary, according to the binary's build
// information.
func (b *build) bill(t target) error {
	info, err := buildinfo.ReadFile(b.binary(t))
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata": map[string]any{
			"timestamp": b.when.Format(time.RFC3339),
			"component": component{Type: "application", Name: info.Main.Path, Version: b.version},
		},
		"components": libraries(info),
	}, "", " ")
	if err != nil {
		return err
	}
	name := filepath.Base(strings.TrimSuffix(b.binary(t), ".exe")) + ".cdx.json"
	return os.WriteFile(filepath.Join(b.out, name), append(text, '\n'), 0o644)
}

// libraries lists the modules in a binary. If a module is replaced by a directory of this
// repository, it is part of the application itself.
func libraries(info *buildinfo.BuildInfo) []component {
	release := strings.TrimPrefix(info.GoVersion, "go")
	parts := []component{{
		Type: "library", Ref: "go", Name: "std", Version: release, URL: "pkg:golang/std@" + release,
	}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if strings.HasPrefix(m.Path, ".") {
			continue
		}
		url := "pkg:golang/" + m.Path + "@" + m.Version
		parts = append(parts, component{
			Type: "library", Ref: url, Name: m.Path, Version: m.Version, URL: url,
		})
	}
	return parts
}
