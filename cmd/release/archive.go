package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"time"
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
