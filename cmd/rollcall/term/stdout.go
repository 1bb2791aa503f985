package term

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
)

// Output is a command's standard output. It remembers the first write that failed, which
// few commands look at, and then ends the command's context: nobody reads what follows.
type Output struct {
	To   io.Writer
	Stop context.CancelFunc

	mu  sync.Mutex
	err error // guarded by mu
}

// Write writes, unless a write has failed before.
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

// Failed gives the error of the first write that failed; nil when none did.
func (o *Output) Failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// FileOf gives the file that a stream writes to, if it is one.
func FileOf(stream any) (*os.File, bool) {
	if o, ok := stream.(*Output); ok {
		stream = o.To
	}
	f, ok := stream.(*os.File)
	return f, ok
}
