package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

const (
	// lookEvery is how often FileWatch.Each looks at its file: soon enough for a person who
	// waits for the effect. Looking works on every file system and through the symbolic links
	// of container platforms, which notifications do not.
	lookEvery = time.Second

	// lookSmall is up to which size a look reads the file, and compares its content. Of a
	// larger one that has the identity, size and time of before every lookReadEvery-th look
	// does. Guess: a megabyte is hashed in a millisecond.
	lookSmall     = 1 << 20
	lookReadEvery = 30
)

// FileWatch notices when the content of a file changes, which need not exist. It is not safe for
// concurrent use.
type FileWatch struct {
	file  string
	every time.Duration
	seen  fs.FileInfo // of the last look; nil: there was no file
	sum   string      // of its content then
	looks int         // since the content was read
}

// WatchFile begins with the content that the file has now. An empty name is no file.
func WatchFile(file string) *FileWatch {
	w := &FileWatch{file: file, every: lookEvery}
	w.seen, w.sum = w.look(), w.content()
	return w
}

// Found reports whether there was a file at the last look.
func (w *FileWatch) Found() bool { return w.seen != nil }

// Changed reads the file and reports whether its content differs from the last look. A file may change and keep its
// size and time.
func (w *FileWatch) Changed() bool {
	now := w.look()
	w.looks++
	if sameVersion(now, w.seen) && (now == nil || now.Size() > lookSmall && w.looks < lookReadEvery) {
		return false
	}
	w.seen, w.looks = now, 0
	sum := w.content()
	changed := sum != w.sum
	w.sum = sum
	return changed
}

// Each looks once a second, and calls do when the content has changed, until ctx ends.
func (w *FileWatch) Each(ctx context.Context, do func()) {
	if w.file == "" {
		return
	}
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if w.Changed() {
			do()
		}
	}
}

// look returns the file as it is now; nil when there is none.
func (w *FileWatch) look() fs.FileInfo {
	if w.file == "" {
		return nil
	}
	now, err := os.Stat(w.file)
	if err != nil {
		return nil
	}
	return now
}

// content returns a hash of what stands in the file; "" when there is none, and why not when it
// cannot be read.
func (w *FileWatch) content() string {
	if w.file == "" {
		return ""
	}
	text, err := readFile(w.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil:
		return err.Error()
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// sameVersion reports whether two looks at a file saw the same bytes, as far as
// its identity, size and time can tell; nil stands for no file.
func sameVersion(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
