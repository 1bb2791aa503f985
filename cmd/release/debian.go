package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// entry is a file of an archive, or a folder when its name ends with a slash.
type entry struct {
	name string
	mode int64
	user int // id of its owner and of its group; 0: root
	body []byte
	link string // target of a symbolic link
}

// makeTar makes a tar archive whose bytes depend only on its entries and the time.
func makeTar(entries []entry, at time.Time) ([]byte, error) {
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

func makeTarGz(entries []entry, at time.Time) ([]byte, error) {
	archive, err := makeTar(entries, at)
	if err != nil {
		return nil, err
	}
	return compress(archive)
}

func compress(text []byte) ([]byte, error) {
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

// packagedFiles are the source files that the Debian package contains: from, to, mode.
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

// control describes the package; its verbs are version, architecture and size in KiB. The package needs systemd only
// to make the user and folders; a node runs without it.
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
// because a new one needs a configuration first, and never delete a node's data.
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

func (r release) makeDebian(b built) ([]byte, error) {
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
	dataTar, err := makeTarGz(withFolders(data), r.date)
	if err != nil {
		return nil, err
	}
	// Debian sorts 0.1.0~rc1 before 0.1.0, but 0.1.0-rc1 after it.
	version := strings.Replace(r.version, "-rc", "~rc", 1)
	controlTar, err := makeTarGz([]entry{
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
