package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
)

// sbom is a software bill of materials: CycloneDX 1.6.
type sbom struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type     string    `json:"type"`
	Ref      string    `json:"bom-ref"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Licenses []licence `json:"licenses,omitempty"`
	PURL     string    `json:"purl"`
}

type licence struct {
	Expression string `json:"expression"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// licenceLine matches the lines of NOTICE that give a module's licence.
var licenceLine = regexp.MustCompile(`(?m)^(\S+/\S+): ([A-Za-z0-9., -]+)$`)

// makeSBOM makes the SBOM of a binary from the build information in it, with the licences that NOTICE names.
func (r release) makeSBOM(b built) ([]byte, error) {
	notice, err := os.ReadFile(filepath.Join(r.root, "NOTICE"))
	if err != nil {
		return nil, err
	}
	licences := map[string]string{"rollcall": "Apache-2.0", "std": "BSD-3-Clause"}
	for _, m := range licenceLine.FindAllStringSubmatch(string(notice), -1) {
		licences[m[1]] = strings.ReplaceAll(m[2], ", ", " AND ")
	}
	describe := func(kind, path, version string) component {
		purl := "pkg:golang/" + path + "@" + version
		c := component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
		if l := licences[path]; l != "" {
			c.Licenses = []licence{{Expression: l}}
		}
		return c
	}
	own := describe("application", "rollcall", r.version)
	all := sbom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Serial:     "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceURL, []byte(own.PURL+b.goos+b.goarch+r.commit)).String(),
		Metadata:   metadata{Timestamp: r.date.Format(time.RFC3339), Component: own},
		Components: []component{describe("library", "std", strings.TrimPrefix(b.info.GoVersion, "go"))}}
	for _, m := range b.info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all.Components = append(all.Components, describe("library", m.Path, m.Version))
	}
	needs := dependency{Ref: own.Ref}
	for _, c := range all.Components {
		needs.DependsOn = append(needs.DependsOn, c.Ref)
	}
	all.Dependencies = []dependency{needs}
	text, err := json.MarshalIndent(all, "", "  ")
	return append(text, '\n'), err
}
