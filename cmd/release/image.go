package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// nobody is the user of the image; no other system has a name or a home for it.
const nobody = 65532

// descriptor names a blob of the image (OCI image specification 1.1).
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

const mediaPrefix = "application/vnd.oci.image."

// layout collects the blobs of an OCI image layout.
type layout struct{ entries []entry }

func (l *layout) addBlob(mediaType string, body []byte) descriptor {
	sum := fmt.Sprintf("%x", sha256.Sum256(body))
	l.entries = append(l.entries, entry{name: "blobs/sha256/" + sum, mode: 0o644, body: body})
	return descriptor{MediaType: mediaPrefix + mediaType, Digest: "sha256:" + sum, Size: len(body)}
}

func (l *layout) addJSON(mediaType string, value any) (descriptor, error) {
	text, err := json.Marshal(value)
	return l.addBlob(mediaType, text), err
}

// writeImage writes an archive with one image for several processors, for `skopeo copy oci-archive:...`, `podman load`
// and `ctr image import`. The image holds only the binary, no shell.
func (r release) writeImage(platforms []built) error {
	archive, err := r.makeImage(platforms)
	if err != nil {
		return err
	}
	return r.writeFile(fmt.Sprintf("rollcall_%s_oci.tar", r.version), archive)
}

func (r release) makeImage(platforms []built) ([]byte, error) {
	l := &layout{}
	var manifests []descriptor
	for _, b := range platforms {
		m, err := r.addPlatform(l, b)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, m)
	}
	index := map[string]any{"schemaVersion": 2, "mediaType": mediaPrefix + "index.v1+json", "manifests": manifests}
	d, err := l.addJSON("index.v1+json", index)
	if err != nil {
		return nil, err
	}
	d.Annotations = map[string]string{"org.opencontainers.image.ref.name": strings.ReplaceAll(r.version, "+", "-")}
	index["manifests"] = []descriptor{d}
	top, err := json.Marshal(index)
	if err != nil {
		return nil, err
	}
	head := []entry{
		{name: "oci-layout", mode: 0o644, body: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{name: "index.json", mode: 0o644, body: top},
		{name: "blobs/", mode: 0o755},
		{name: "blobs/sha256/", mode: 0o755},
	}
	return makeTar(append(head, l.entries...), r.date)
}

// addPlatform adds layer, configuration and manifest of one platform.
func (r release) addPlatform(l *layout, b built) (m descriptor, err error) {
	content := []entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/passwd", mode: 0o644, body: fmt.Appendf(nil, "rollcall:x:%d:%[1]d::/var/lib/rollcall:/none\n", nobody)},
		{name: "etc/group", mode: 0o644, body: fmt.Appendf(nil, "rollcall:x:%d:\n", nobody)},
		{name: "tmp/", mode: 0o1777},
		{name: "usr/", mode: 0o755},
		{name: "usr/bin/", mode: 0o755},
		{name: "usr/bin/rollcall", mode: 0o755, body: b.binary},
		{name: "var/", mode: 0o755},
		{name: "var/lib/", mode: 0o755},
		{name: "var/lib/rollcall/", mode: 0o700, user: nobody},
	}
	for _, file := range []string{"LICENSE", "NOTICE"} {
		text, err := os.ReadFile(filepath.Join(r.root, file))
		if err != nil {
			return m, err
		}
		content = append(content, entry{name: file, mode: 0o644, body: text})
	}
	layer, err := makeTar(content, r.date)
	if err != nil {
		return m, err
	}
	small, err := compress(layer)
	if err != nil {
		return m, err
	}
	config, err := l.addJSON("config.v1+json", r.imageConfig(b, fmt.Sprintf("sha256:%x", sha256.Sum256(layer))))
	if err != nil {
		return m, err
	}
	m, err = l.addJSON("manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": mediaPrefix + "manifest.v1+json", "config": config,
		"layers": []descriptor{l.addBlob("layer.v1.tar+gzip", small)},
	})
	m.Platform = map[string]string{"os": b.goos, "architecture": b.goarch}
	return m, err
}

// imageConfig says how to run the image: as a user without rights, and with SIGTERM to stop the node.
func (r release) imageConfig(b built, layer string) map[string]any {
	nothing := map[string]any{}
	return map[string]any{
		"created": r.date.Format(time.RFC3339), "os": b.goos, "architecture": b.goarch,
		"config": map[string]any{
			"User":         fmt.Sprintf("%d:%d", nobody, nobody),
			"Env":          []string{"PATH=/usr/bin", "ROLLCALL_DATA_DIR=/var/lib/rollcall"},
			"Entrypoint":   []string{"/usr/bin/rollcall"},
			"Cmd":          []string{"serve"},
			"WorkingDir":   "/var/lib/rollcall",
			"Volumes":      map[string]any{"/var/lib/rollcall": nothing},
			"StopSignal":   "SIGTERM",
			"ExposedPorts": map[string]any{"8080/tcp": nothing, "8081/tcp": nothing, "8082/tcp": nothing},
			"Labels": map[string]string{
				"org.opencontainers.image.title": "Rollcall", "org.opencontainers.image.version": r.version,
				"org.opencontainers.image.revision": r.commit, "org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{layer}},
		"history": []any{map[string]any{"created": r.date.Format(time.RFC3339), "created_by": "cmd/release"}},
	}
}
