package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
)

// output is a command's standard output. It remembers the first write that failed, which
// few commands look at, and then ends the command's context: nobody reads what follows.
type output struct {
	to   io.Writer
	stop context.CancelFunc

	mu  sync.Mutex
	err error // guarded by mu
}

// Write writes, unless a write has failed before.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.to.Write(b)
	if err != nil {
		o.err = fmt.Errorf("write the output: %w", err)
		o.stop()
		return n, o.err
	}
	return n, nil
}

// failed gives the error of the first write that failed; nil when none did.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// fileOf gives the file that a stream writes to, if it is one.
func fileOf(stream any) (*os.File, bool) {
	if o, ok := stream.(*output); ok {
		stream = o.to
	}
	f, ok := stream.(*os.File)
	return f, ok
}
