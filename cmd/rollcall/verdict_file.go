package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/term"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

const (
	// replyLineMax bounds a line of a file of replies.
	replyLineMax = 64 << 10

	// faultsNamed bounds the lines that an error names.
	faultsNamed = 5
)

// fileVerdict is what one line of a file is taken for.
type fileVerdict struct {
	Line int `json:"line"`
	verdictView
}

// judgeFile judges the replies of a file, one in each line, and prints a line for each and how many there are of
// each kind. Empty lines and those that begin with # are left out. An error names the lines that are no replies; the
// others are judged all the same.
func judgeFile(c *cobra.Command, rules *verdict.Rules, raw evidence.Raw, name string, asJSON bool) error {
	in := c.InOrStdin()
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("open the file of replies: %w: check the path", err)
		}
		defer file.Close()
		in = file
	}
	out := bufio.NewWriter(c.OutOrStdout())
	kinds, number, faults, named := map[string]int{}, 0, 0, []string{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, replyLineMax)
	for lines.Scan() {
		number++
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		attempt, err := noteLine(raw, text)
		if err != nil {
			if faults++; faults <= faultsNamed {
				named = append(named, fmt.Sprintf("line %d: %v", number, err))
			}
			continue
		}
		view := viewVerdict(rules, rules.Judge(attempt))
		view.Text = attempt.Text
		kinds[view.Says]++
		if err := printFileVerdict(out, fileVerdict{number, view}, asJSON); err != nil {
			return err
		}
	}
	if !asJSON && len(kinds) > 0 {
		fmt.Fprintln(out)
		for _, says := range slices.Sorted(maps.Keys(kinds)) {
			fmt.Fprintf(out, "%6s  %s\n", term.Grouped(int64(kinds[says])), says)
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w: a line has at most %d bytes", number+1, err, replyLineMax)
	}
	if faults > 0 {
		return fmt.Errorf("lines that are no replies: %d; %s", faults, strings.Join(named, "; "))
	}
	return nil
}

// noteLine makes an attempt of "REPLY", "STAGE | REPLY" or "STAGE@HOST | REPLY".
func noteLine(raw evidence.Raw, text string) (evidence.Attempt, error) {
	var err error
	if head, rest, found := strings.Cut(text, " | "); found {
		stage, host, _ := strings.Cut(head, "@")
		if raw.Stage, err = parseStage(stage); err != nil {
			return evidence.Attempt{}, err
		}
		if host != "" {
			raw.Host = host
		}
		text = rest
	}
	if raw.Reply, err = verdict.ParseReply(text); err != nil {
		return evidence.Attempt{}, err
	}
	return evidence.Note(raw), nil
}

// printFileVerdict prints one line; what doesn't fit is cut.
func printFileVerdict(w io.Writer, v fileVerdict, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(v)
	}
	const wide = 29
	text := []rune(v.Text)
	if len(text) > wide {
		text = append(text[:wide-1], '…')
	}
	_, err := fmt.Fprintf(w, "%6d  %-42s %s\n", v.Line, v.Says, string(text))
	return err
}
