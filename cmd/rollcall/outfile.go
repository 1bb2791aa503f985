package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// outFile is where --out puts results. Nothing is overwritten without --force, and never the input.
type outFile struct {
	name  string // "": standard output
	force bool
}

// addOutFlags adds --out and --force to a command.
func addOutFlags(c *cobra.Command, o *outFile) {
	c.Flags().StringVar(&o.name, "out", "", "write the results to this `FILE` instead of standard output; it must not exist")
	c.Flags().BoolVar(&o.force, "force", false, "with --out: replace the file if it exists; never the input")
}

// check finds out, before any work, whether the results can be written. in is the input, nil for
// none; stdout is where results go without --out.
func (o outFile) check(in *os.File, stdout io.Writer) error {
	if o.name == "" {
		if o.force {
			return usageError{"--force needs --out FILE"}
		}
		if f, ok := fileOf(stdout); ok && in != nil {
			if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && isFile(info, in) {
				return errors.New("standard output is the file to verify itself: give --out with another file")
			}
		}
		return nil
	}
	info, err := os.Stat(o.name)
	switch {
	case err == nil && in != nil && isFile(info, in):
		return fmt.Errorf("--out %s is the file to verify itself: give another file", o.name)
	case err == nil && info.IsDir():
		return fmt.Errorf("--out %s is a folder: name a file in it, such as %s", o.name, filepath.Join(o.name, "results.csv"))
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("--out %s is no regular file: for standard output give no --out", o.name)
	}
	if _, err := os.Lstat(o.name); err == nil && !o.force { // also a link to nothing
		return o.exists()
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return o.failed(err)
	}
	if os.IsPathSeparator(o.name[len(o.name)-1]) {
		return fmt.Errorf("--out %s is a folder that does not exist: name a file", o.name)
	}
	f, err := o.create()
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// isFile says whether what info is of is the file f: by a link or in another spelling, too.
func isFile(info os.FileInfo, f *os.File) bool {
	own, err := f.Stat()
	return err == nil && os.SameFile(info, own)
}

func (o outFile) exists() error {
	return fmt.Errorf("%s exists: give another --out, or --force to replace it", o.name)
}

// failed is the error about a file that can't be written, with what to do.
func (o outFile) failed(err error) error {
	folder := filepath.Dir(o.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no folder %s for --out %s: make it, or give another --out", folder, o.name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("this user may not write into %s: give --out in another folder", folder)
	}
	return fmt.Errorf("--out %s can't be written: %w: give another --out", o.name, err)
}

// create makes a file beside the one that it will become. The results are the customer's addresses:
// the file is for its owner only.
func (o outFile) create() (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(o.target()), ".rollcall-results-*") // mode 0600
	if err != nil {
		return nil, o.failed(err)
	}
	return f, nil
}

// target is the file itself when the name is a link to one.
func (o outFile) target() string {
	if target, err := filepath.EvalSymlinks(o.name); err == nil {
		return target
	}
	return o.name
}

// write has fill write the file, all or nothing.
func (o outFile) write(fill func(io.Writer) error) error {
	f, err := o.create()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	err = fill(out)
	err = errors.Join(err, out.Flush(), f.Close())
	if err == nil {
		err = o.publish(f.Name())
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// publish gives the finished file its name. Without --force a file that came there meanwhile stays.
func (o outFile) publish(finished string) error {
	if !o.force {
		err := os.Link(finished, o.name) // unlike a rename it never replaces
		switch {
		case err == nil:
			return os.Remove(finished)
		case errors.Is(err, fs.ErrExist):
			return o.exists()
		}
		if _, err := os.Lstat(o.name); err == nil { // a file system without links
			return o.exists()
		}
	}
	if err := os.Rename(finished, o.target()); err != nil {
		return o.failed(err)
	}
	return nil
}
