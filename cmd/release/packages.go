package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
)

// entry is a file of an archive, or a folder when its name ends with a slash.
type entry struct {
	name string
	mode int64
	user int // who owns it, and its group; 0: root
	body []byte
	link string // where a symbolic link points to
}

// archived makes a tar archive whose bytes depend on its entries and the time only.
func archived(entries []entry, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Uid: e.user, Gid: e.user, Size: int64(len(e.body)), ModTime: at,
			Typeflag: tar.TypeReg, Linkname: e.link, Format: tar.FormatUSTAR}
		switch {
		case e.link != "":
			h.Typeflag = tar.TypeSymlink
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("archive %s: %w", e.name, err)
		}
		if _, err := w.Write(e.body); err != nil {
			return nil, fmt.Errorf("archive %s: %w", e.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// packed makes a tar.gz archive.
func packed(entries []entry, at time.Time) ([]byte, error) {
	archive, err := archived(entries, at)
	if err != nil {
		return nil, err
	}
	return zipped(archive)
}

func zipped(text []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// packagedFiles are files of the source in the Debian package: from, to, mode.
var packagedFiles = []struct {
	from, to string
	mode     int64
}{
	{"deploy/one-server.toml", "etc/rollcall/rollcall.toml", 0o644},
	{"deploy/rollcall.service", "usr/lib/systemd/system/rollcall.service", 0o644},
	{"deploy/rollcall-backup.service", "usr/lib/systemd/system/rollcall-backup.service", 0o644},
	{"deploy/rollcall-backup.timer", "usr/lib/systemd/system/rollcall-backup.timer", 0o644},
	{"deploy/sysusers.conf", "usr/lib/sysusers.d/rollcall.conf", 0o644},
	{"deploy/tmpfiles.conf", "usr/lib/tmpfiles.d/rollcall.conf", 0o644},
	{"LICENSE", "usr/share/doc/rollcall/copyright", 0o644},
	{"NOTICE", "usr/share/doc/rollcall/NOTICE", 0o644},
	{"deploy/Caddyfile", "usr/share/doc/rollcall/examples/Caddyfile", 0o644},
	{"deploy/nginx.conf", "usr/share/doc/rollcall/examples/nginx.conf", 0o644},
	{"deploy/prometheus/alerts.yml", "usr/share/doc/rollcall/examples/alerts.yml", 0o644},
}

// control describes the package; its verbs are version, architecture and size in KiB. Only making user and folders
// needs systemd; a node runs without it.
const control = `Package: rollcall
Version: %s
Architecture: %s
Installed-Size: %d
Maintainer: Rollcall <rollcall@localhost>
Section: mail
Priority: optional
Depends: systemd
Recommends: ca-certificates
Description: email verification engine
 Rollcall tells you which addresses on a list still take mail. You run it
 yourself: lists stay on your machines, every answer comes with the receiver's
 words, and nothing is ever charged twice.
`

// The scripts make user and folders, and restart a running node when its binary is replaced. They never start a node,
// because it needs a configuration first. They never delete a node's data.
const (
	afterInstall = `#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
systemd-sysusers ${DPKG_ROOT:+--root="$DPKG_ROOT"} rollcall.conf
systemd-tmpfiles ${DPKG_ROOT:+--root="$DPKG_ROOT"} --create rollcall.conf
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	[ -z "$2" ] || systemctl try-restart rollcall.service
fi
`
	beforeRemove = `#!/bin/sh
set -e
if [ "$1" = remove ] && [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
	systemctl disable --now rollcall.service rollcall-backup.timer || true
fi
`
)

func (r release) makePackage(b built) ([]byte, error) {
	data := []entry{{name: "usr/bin/rollcall", mode: 0o755, body: b.binary}}
	size := len(b.binary)
	for _, f := range packagedFiles {
		text, err := os.ReadFile(filepath.Join(r.root, f.from))
		if err != nil {
			return nil, err
		}
		size += len(text)
		data = append(data, entry{name: f.to, mode: f.mode, body: text})
	}
	dataTar, err := packed(withFolders(data), r.date)
	if err != nil {
		return nil, err
	}
	// Debian sorts 0.1.0~rc1 before 0.1.0, and 0.1.0-rc1 after it.
	version := strings.Replace(r.version, "-rc", "~rc", 1)
	controlTar, err := packed([]entry{
		{name: "./control", mode: 0o644, body: fmt.Appendf(nil, control, version, b.goarch, size>>10)},
		{name: "./conffiles", mode: 0o644, body: []byte("/etc/rollcall/rollcall.toml\n")},
		{name: "./postinst", mode: 0o755, body: []byte(afterInstall)},
		{name: "./prerm", mode: 0o755, body: []byte(beforeRemove)},
	}, r.date)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString("!<arch>\n") // ar, as deb(5) has it
	for _, member := range []entry{
		{name: "debian-binary", body: []byte("2.0\n")},
		{name: "control.tar.gz", body: controlTar},
		{name: "data.tar.gz", body: dataTar},
	} {
		fmt.Fprintf(&out, "%-16s%-12d0     0     100644  %-10d`\n", member.name, r.date.Unix(), len(member.body))
		out.Write(member.body)
		if len(member.body)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return out.Bytes(), nil
}

// withFolders puts each folder before its files, and writes all names in dpkg's form.
func withFolders(files []entry) (all []entry) {
	made := map[string]bool{}
	for _, f := range files {
		for at, c := range f.name {
			if folder := f.name[:at] + "/"; c == '/' && !made[folder] {
				made[folder] = true
				all = append(all, entry{name: "./" + folder, mode: 0o755})
			}
		}
		f.name = "./" + f.name
		all = append(all, f)
	}
	return all
}

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

// addBlob stores a blob under its digest.
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
	return archived(append(head, l.entries...), r.date)
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
	layer, err := archived(content, r.date)
	if err != nil {
		return m, err
	}
	small, err := zipped(layer)
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

// imageConfig says how to run the image: a node that stops on SIGTERM, as a user without rights.
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

// bom is a software bill of materials: CycloneDX 1.6.
type bom struct {
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

// noticed matches the lines of NOTICE that give a module's licence.
var noticed = regexp.MustCompile(`(?m)^(\S+/\S+): ([A-Za-z0-9., -]+)$`)

// makeBill makes the SBOM of a binary from the build information in it, with the licences that NOTICE names.
func (r release) makeBill(b built) ([]byte, error) {
	notice, err := os.ReadFile(filepath.Join(r.root, "NOTICE"))
	if err != nil {
		return nil, err
	}
	licences := map[string]string{"rollcall": "Apache-2.0", "std": "BSD-3-Clause"}
	for _, m := range noticed.FindAllStringSubmatch(string(notice), -1) {
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
	all := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
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
