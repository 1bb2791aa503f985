package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/term"
)

// receiversEvery is how often a watched table of receivers is renewed.
const receiversEvery = time.Second

// What a terminal is told (ECMA-48, and xterm's private modes 25 and 1049).
const (
	screenOpen  = "\x1b[?1049h\x1b[?25l" // another screen, no cursor
	screenClose = "\x1b[?25h\x1b[?1049l" // the cursor and what was there before
	screenHome  = "\x1b[H"
	screenLine  = "\x1b[K" // clears the rest of a line
	screenRest  = "\x1b[J" // clears what is below
)

// watch shows the receivers each second until ctx ends, which is no error. A node that
// has answered once may go away and come back.
func (v receiversScreen) watch(ctx context.Context) error {
	found, err := v.client.Receivers(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	redraw := term.IsTerminal(v.out) && !v.asJSON
	if redraw {
		if _, err := io.WriteString(v.out, screenOpen); err != nil {
			return fmt.Errorf("write the output: %w", err)
		}
		defer func() { _, _ = io.WriteString(v.out, screenClose) }()
	}
	for next := time.Now(); ; {
		if err := v.frame(found, err, redraw); err != nil {
			return err
		}
		next = next.Add(v.every)
		if term.Sleep(ctx, max(time.Until(next), v.every/4)) != nil {
			return nil
		}
		if late := time.Now(); next.Before(late.Add(-v.every)) {
			next = late
		}
		if found, err = v.client.Receivers(ctx); ctx.Err() != nil {
			return nil
		}
	}
}

// frame shows what a node said, or why it said nothing.
func (v receiversScreen) frame(found inspect.Receivers, failed error, redraw bool) error {
	if v.asJSON {
		if failed != nil {
			return term.PrintJSON(v.out, map[string]string{"error": failed.Error()})
		}
		return term.PrintJSON(v.out, v.pick(found))
	}
	width, height := term.SizeOf(v.out)
	var body bytes.Buffer
	head := fmt.Sprintf("%s  receivers by %s", time.Now().UTC().Format("15:04:05Z"), v.sort)
	if v.part != "" {
		head += fmt.Sprintf(", with %q", v.part)
	}
	fmt.Fprintf(&body, "%s\n\n", head)
	if failed != nil {
		body.WriteString(term.FoldedTo(failed.Error(), 0, width) + "\n")
	} else {
		t := tableOf{v, width, 0}
		if redraw {
			t.lines = max(height-4, 4)
		}
		if err := t.write(&body, found); err != nil {
			return err
		}
	}
	text := body.String() + "\n"
	if redraw {
		lines := strings.Split(strings.TrimRight(body.String(), "\n"), "\n")
		if height > 1 && len(lines) > height {
			lines = lines[:height]
		}
		text = screenHome + strings.Join(lines, screenLine+"\r\n") + screenLine + screenRest
	}
	if _, err := io.WriteString(v.out, text); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}
