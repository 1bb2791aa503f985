package term

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/renameio/v2"
)

// OutFile is the file for --out. Without --force nothing is overwritten; the input never is.
type OutFile struct {
	Name  string // "": standard output
	Force bool
}

// Check checks, before any work, whether the results can be written. in is the input, or nil. Without --out, stdout
// gets the results.
func (o OutFile) Check(in *os.File, stdout io.Writer) error {
	if o.Name == "" {
		if o.Force {
			return UsageError("--force needs --out FILE")
		}
		if f, ok := FileOf(stdout); ok && in != nil {
			if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && isFile(info, in) {
				return errors.New("standard output is the file to verify itself: give --out with another file")
			}
		}
		return nil
	}
	info, err := os.Stat(o.Name)
	switch {
	case err == nil && in != nil && isFile(info, in):
		return fmt.Errorf("--out %s is the file to verify itself: give another file", o.Name)
	case err == nil && info.IsDir():
		return fmt.Errorf("--out %s is a folder: name a file in it, such as %s", o.Name, filepath.Join(o.Name, "results.csv"))
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("--out %s is not a regular file: for standard output give no --out", o.Name)
	}
	if _, err := os.Lstat(o.Name); err == nil && !o.Force { // finds a broken link too
		return o.exists()
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return o.failed(err)
	}
	if os.IsPathSeparator(o.Name[len(o.Name)-1]) {
		return fmt.Errorf("--out %s is a folder that does not exist: name a file", o.Name)
	}
	f, err := o.create()
	if err != nil {
		return err
	}
	return f.Cleanup()
}

// isFile reports whether info describes the file f, also through a link or in another spelling.
func isFile(info os.FileInfo, f *os.File) bool {
	own, err := f.Stat()
	return err == nil && os.SameFile(info, own)
}

func (o OutFile) exists() error {
	return fmt.Errorf("%s exists: give another --out, or --force to replace it", o.Name)
}

// failed returns the error about a file that can't be written, with what to do.
func (o OutFile) failed(err error) error {
	folder := filepath.Dir(o.Name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no folder %s for --out %s: make it, or give another --out", folder, o.Name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("this user may not write into %s: give --out in another folder", folder)
	}
	return fmt.Errorf("--out %s can't be written: %w: give another --out", o.Name, err)
}

// create makes a temporary file beside the final file, or beside the target of a link. Results hold customers'
// addresses, so only the owner can read the file.
func (o OutFile) create() (*renameio.PendingFile, error) {
	target := o.Name
	if to, err := filepath.EvalSymlinks(o.Name); err == nil {
		target = to
	}
	f, err := renameio.NewPendingFile(target, renameio.WithTempDir(filepath.Dir(target)),
		renameio.WithStaticPermissions(0o600))
	if err != nil {
		return nil, o.failed(err)
	}
	return f, nil
}

// Write writes the file with fill, all or nothing.
func (o OutFile) Write(fill func(io.Writer) error) error {
	f, err := o.create()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	if err = errors.Join(fill(out), out.Flush()); err == nil {
		err = o.publish(f)
	}
	return errors.Join(err, f.Cleanup()) // does nothing once the file has its name
}

// publish gives the finished file its name. Without --force it does not replace a file that appeared during the work.
func (o OutFile) publish(f *renameio.PendingFile) error {
	if err := f.Sync(); err != nil {
		return o.failed(err)
	}
	if !o.Force {
		err := os.Link(f.Name(), o.Name) // unlike a rename, a link never replaces a file
		if err == nil {
			return nil
		}
		if _, there := os.Lstat(o.Name); errors.Is(err, fs.ErrExist) || there == nil { // else: no links here
			return o.exists()
		}
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return o.failed(err)
	}
	return nil
}

// WriteJSON writes v into a file for this user only, completely or not at all.
func WriteJSON(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return WriteText(name, text)
}

// WriteText writes a line into a file for this user only, completely or not at all, also if the disk is full.
func WriteText(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	if err := ReplaceFile(name, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// ReplaceFile renames a file over another or to a free name, so that readers see either the old or the new content.
func ReplaceFile(name string, text []byte, mode fs.FileMode) error {
	return renameio.WriteFile(name, text, mode, renameio.WithTempDir(filepath.Dir(name)),
		renameio.WithStaticPermissions(mode))
}

// Output is a command's standard output. Few commands check whether writing fails, so Output remembers the first
// failed write. It then ends the command's context, because nobody reads the rest.
type Output struct {
	To   io.Writer
	Stop context.CancelFunc

	mu  sync.Mutex
	err error // guarded by mu
}

// Write writes to the output, unless an earlier write failed.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.To.Write(b)
	if err != nil {
		o.err = fmt.Errorf("write the output: %w", err)
		o.Stop()
		return n, o.err
	}
	return n, nil
}

// Failed returns the error of the first failed write, or nil.
func (o *Output) Failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// FileOf returns the file that a stream writes to, if any.
func FileOf(stream any) (*os.File, bool) {
	if o, ok := stream.(*Output); ok {
		stream = o.To
	}
	f, ok := stream.(*os.File)
	return f, ok
}

// PrintJSON writes v as indented JSON.
func PrintJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// PrintTable writes rows in columns under their headings.
func PrintTable(w io.Writer, headings []string, rows [][]string) error {
	p := NewPage(w)
	p.Rows(headings, rows)
	return p.Emit()
}
