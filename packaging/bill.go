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

// bill writes of which modules a binary is made, as it says itself, in CycloneDX's format.
func (b *build) bill(t target) error {
	info, err := buildinfo.ReadFile(b.binary(t))
	if err != nil {
		return err
	}
	parts := []component{{
		Type: "library", Ref: "go", Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"),
		URL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
	}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		url := "pkg:golang/" + m.Path + "@" + m.Version
		parts = append(parts, component{
			Type: "library", Ref: url, Name: m.Path, Version: m.Version, URL: url,
		})
	}
	text, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata": map[string]any{
			"timestamp": b.when.Format(time.RFC3339),
			"component": component{Type: "application", Name: info.Main.Path, Version: b.version},
		},
		"components": parts,
	}, "", " ")
	if err != nil {
		return err
	}
	name := filepath.Base(strings.TrimSuffix(b.binary(t), ".exe")) + ".cdx.json"
	return os.WriteFile(filepath.Join(b.out, name), append(text, '\n'), 0o644)
}
