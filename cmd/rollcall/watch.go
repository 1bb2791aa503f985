package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
)

// watchCommand makes c a command for operators. With --watch it shows the answer again and again. show writes the
// answer in at most this many lines; 0 means any number.
func watchCommand[T any](node *adminFlags, c *cobra.Command, every time.Duration,
	ask func(ctx context.Context, to *client.Admin, args []string) (T, error),
	show func(b *term.Page, found T, lines int)) *cobra.Command {
	watch := c.Flags().Bool("watch", false, fmt.Sprintf("show them again every %v, until Ctrl-C", every))
	adminCommand(node, c, func(to *client.Admin, args []string) (T, error) { return ask(c.Context(), to, args) },
		func(b *term.Page, found T) { show(b, found, 0) })
	once := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if !*watch {
			return once(c, args)
		}
		to, err := node.client()
		if err != nil {
			return err
		}
		w := repeated[T]{out: c.OutOrStdout(), every: every, show: show,
			ask: func(ctx context.Context) (T, error) { return ask(ctx, to, args) }}
		w.asJSON, _ = c.Flags().GetBool("json")
		w.redraw = term.IsTerminal(w.out) && !w.asJSON
		return w.run(c.Context())
	}
	return c
}

type repeated[T any] struct {
	out    io.Writer
	asJSON bool
	redraw bool // draw on a screen of its own
	every  time.Duration
	ask    func(ctx context.Context) (T, error)
	show   func(b *term.Page, found T, lines int)
}

// Control sequences (ECMA-48, and xterm's private modes 25 and 1049).
const (
	screenOpen  = "\x1b[?1049h\x1b[?25l" // another screen, no cursor
	screenClose = "\x1b[?25h\x1b[?1049l" // restores the cursor and the earlier content
	screenHome  = "\x1b[H"
	screenLine  = "\x1b[K" // clears the rest of a line
	screenRest  = "\x1b[J" // clears what is below
)

// run shows the answers until ctx ends, which is not an error. A node that answered once may become unreachable and
// come back.
func (w repeated[T]) run(ctx context.Context) error {
	open := false
	defer func() {
		if open {
			_, _ = io.WriteString(w.out, screenClose)
		}
	}()
	return term.Repeat(ctx, w.every, w.ask, func(found T, failed error) error {
		if w.asJSON {
			if failed != nil {
				return term.PrintJSON(w.out, map[string]string{"error": failed.Error()})
			}
			return term.PrintJSON(w.out, found)
		}
		text := w.frame(found, failed)
		if w.redraw && !open {
			open, text = true, screenOpen+text
		}
		if _, err := io.WriteString(w.out, text); err != nil {
			return fmt.Errorf("write the output: %w", err)
		}
		return nil
	})
}

// frame returns the text of an answer, or of the reason why there is none.
func (w repeated[T]) frame(found T, failed error) string {
	_, height := term.SizeOf(w.out)
	b := term.NewPage(w.out)
	fmt.Fprintf(b, "%s\n\n", time.Now().UTC().Format("15:04:05Z"))
	switch {
	case failed != nil:
		b.Para(0, "%v", failed)
	case w.redraw:
		w.show(b, found, max(height-4, 4))
	default:
		w.show(b, found, 0)
	}
	if !w.redraw {
		return b.String() + "\n"
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if height > 1 && len(lines) > height {
		lines = lines[:height]
	}
	return screenHome + strings.Join(lines, screenLine+"\r\n") + screenLine + screenRest
}
