package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/actors/intake"
	"rollcall/cmd/rollcall/list"
	"rollcall/cmd/rollcall/term"
	"rollcall/smtp"
)

const defectsShown = 10

// addListFlags adds the flags that say which column of a list has the addresses.
func addListFlags(c *cobra.Command, o *list.Options) {
	c.Flags().StringVar(&o.Column, "column", "", "the heading or number of the column with the addresses (default: found)")
	c.Flags().StringVar(&o.Delimiter, "delimiter", "", "the character between columns, or tab (default: found)")
}

func newLint() *cobra.Command {
	var o list.Options
	var out term.OutFile
	c := &cobra.Command{
		Use:   "lint FILE",
		Short: "Check a list before it is sent, and correct it",
		Long: "List the rows that would be refused, with what is wrong and what to do. Nothing is sent.\n" +
			"The exit code is 1 when there are such rows. FILE is CSV or a workbook (XLSX); - is standard input.\n\n" +
			"--fix writes a copy with one good address in each row, and says what it corrected and what it left out.",
		Example: "  rollcall lint list.csv\n  rollcall lint --fix customers.xlsx --column Email",
	}
	addListFlags(c, &o)
	mend := c.Flags().Bool("fix", false, "write a clean copy; never over the input")
	addOutFlags(c, &out)
	c.Flags().Lookup("out").Usage = "with --fix: the `FILE` of the copy (default NAME.clean.csv); it must not exist"
	return answerWith(c, func(args []string) (*lintView, error) {
		if out.Name != "" && !*mend {
			return nil, term.UsageError("--out needs --fix: without it nothing is written")
		}
		in, err := openAny(args[0], c.InOrStdin())
		if err != nil {
			return nil, err
		}
		defer in.Close()
		l, err := in.openList(o)
		if err != nil {
			return nil, err
		}
		found := &lintView{File: in.name, Form: l.Form, Defects: []defectView{}}
		if !l.Plain() {
			found.Column = l.Heading()
		}
		var changes list.Changes
		if *mend {
			out.Name = cmp.Or(out.Name, strings.TrimSuffix(in.name, filepath.Ext(in.name))+".clean.csv")
			if err = out.Check(in.File, c.OutOrStdout()); err == nil {
				err = out.Write(func(w io.Writer) (err error) {
					changes, err = l.Clean(w, true)
					return err
				})
			}
		} else {
			changes, err = l.Clean(io.Discard, false)
		}
		if err != nil {
			return nil, err
		}
		found.addChanges(changes, *mend, out.Name)
		return found, nil
	}, func(b *term.Page, found *lintView) { found.printTo(b) })
}

type lintView struct {
	File      string       `json:"file"`
	Form      string       `json:"form,omitempty"`   // of the file, unless it is one column of CSV in UTF-8
	Column    string       `json:"column,omitempty"` // of the addresses, with form
	Addresses int64        `json:"addresses"`
	Skipped   int64        `json:"skipped,omitempty"` // rows without an address, with form
	Out       string       `json:"out,omitempty"`
	Corrected int          `json:"corrected,omitempty"`
	Defects   []defectView `json:"defects"`
}

type defectView struct {
	Row     int64    `json:"row,omitempty"`
	Kind    string   `json:"kind"`
	Text    string   `json:"text"`
	Message string   `json:"message"`
	Means   []string `json:"means,omitempty"`
	Note    bool     `json:"note,omitempty"`     // the service takes the file in spite of it
	LeftOut bool     `json:"left_out,omitempty"` // of the clean copy
}

// failsWith returns an error if rows have defects and no clean copy was asked for.
func (v *lintView) failsWith() error {
	n := v.refusedRows()
	if n == 0 || v.Out != "" {
		return nil
	}
	return fmt.Errorf("%s: %s: the service would refuse the file", v.File, rowsText(n))
}

func (v *lintView) addChanges(c list.Changes, mended bool, out string) {
	v.Addresses, v.Skipped, v.Out, v.Corrected = c.Written(), c.Skipped, out, len(c.Corrected)
	for _, d := range c.LeftOut {
		v.Defects = append(v.Defects, viewOf(d, mended && !d.Note()))
	}
	for _, d := range c.Corrected {
		v.Defects = append(v.Defects, viewOf(d, false))
	}
	slices.SortStableFunc(v.Defects, func(a, b defectView) int { return cmp.Compare(a.Row, b.Row) })
}

func viewOf(d *intake.Defect, leftOut bool) defectView {
	return defectView{Row: d.Row, Kind: string(d.Kind), Text: strings.ToValidUTF8(d.Text, "\ufffd"), Message: d.Advice(),
		Means: d.Means, Note: d.Note(), LeftOut: leftOut}
}

func (v *lintView) refusedRows() (n int) {
	for _, d := range v.Defects {
		if !d.Note {
			n++
		}
	}
	return n
}

// asLine describes a row with a defect for people: place, content, what is wrong, what to do.
func (d defectView) asLine() string {
	where := ""
	if d.Row > 0 {
		where = fmt.Sprintf("row %d", d.Row)
		if d.Text != "" {
			where += ", " + strconv.Quote(d.Text)
		}
		where += ": "
	}
	text := where + d.Message
	if len(d.Means) > 0 {
		text = strings.TrimSuffix(text, ".") + ": " + strings.Join(d.Means, ", ")
	}
	if d.LeftOut {
		text += " (left out)"
	}
	return text
}

// firstLines describes the first rows with defects, and says how many more there are.
func (v *lintView) firstLines() []string {
	var lines []string
	for _, d := range v.Defects[:min(len(v.Defects), defectsShown)] {
		lines = append(lines, d.asLine())
	}
	if more := len(v.Defects) - defectsShown; more > 0 {
		lines = append(lines, fmt.Sprintf("and %s more: rollcall lint --json %s", term.Grouped(more), v.File))
	}
	return lines
}

func (v *lintView) printTo(b *term.Page) {
	if v.Form != "" {
		b.Para(0, "%s is %s: the addresses are in %s. `rollcall verify` reads it as it is; other ways take one column of "+
			"CSV in UTF-8, which --fix writes.", v.File, v.Form, v.Column)
	}
	for i, line := range v.firstLines() {
		where, what, isRow := strings.Cut(line, ": ")
		code := term.Red
		if i < len(v.Defects) && (v.Defects[i].Note || v.Out != "" && !v.Defects[i].LeftOut) {
			code = term.Yellow // the service accepts the row, or it was corrected
		}
		if isRow {
			what = ": " + what
		}
		b.WriteString(b.Mark(code, where) + what + "\n")
	}
	n := v.refusedRows()
	code := term.Green
	if n > 0 && v.Out == "" {
		code = term.Red
	}
	text := fmt.Sprintf("%s: %s to send, %s", v.File, term.Counted(v.Addresses, "address"), b.Mark(code, rowsText(n)))
	if v.Out != "" {
		text = fmt.Sprintf("%s has %s: %s corrected, %s left out", v.Out, term.Counted(v.Addresses, "address"),
			term.Grouped(v.Corrected), term.Grouped(n-v.Corrected))
	}
	if v.Skipped > 0 {
		text += fmt.Sprintf(", %s without an address", term.Counted(v.Skipped, "row"))
	}
	b.WriteString(text + "\n")
}

func rowsText(n int) string {
	if n == 0 {
		return "no defects"
	}
	return term.Counted(n, "row") + " with a defect"
}

func newData() *cobra.Command {
	c := &cobra.Command{
		Use:   "data",
		Short: "Show the lists behind the flags in results, and how old they are",
		Long: "Show the lists from which flags in results come: role, free, disposable, suggest and operator. They are " +
			"part of\nthis program, and no network is asked.",
	}
	lists := func([]string) ([]smtp.FlagList, error) { return smtp.FlagLists() }
	return answerWith(c, lists, func(b *term.Page, all []smtp.FlagList) {
		now := time.Now()
		t := &term.Table{Columns: []term.Column{{Name: "LIST"}, {Name: "ENTRIES", Right: true}, {Name: "DATE"},
			{Name: "AGE", Right: true}, {Name: "LICENCE"}, {Name: "WHAT", Least: 20, Wrap: true}}}
		for _, l := range all {
			t.Add(l.Name, term.Grouped(l.Entries), l.Date.Format(time.DateOnly), term.Span(now.Sub(l.Date)),
				l.Licence, l.What)
		}
		b.Table(t)
	})
}

// openAny opens a file. For "-" it copies standard input to a temporary file first.
func openAny(name string, stdin io.Reader) (*input, error) {
	if name != "-" {
		return openInput(name)
	}
	in, err := keepInput("stdin.csv", func(w io.Writer) error {
		_, err := io.Copy(w, stdin)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return in, nil
}

// keepInput makes a temporary file, lets write fill it, and returns it as an input without a name.
func keepInput(name string, write func(io.Writer) error) (*input, error) {
	f, err := os.CreateTemp("", "rollcall-*")
	if err != nil {
		return nil, fmt.Errorf("keep the addresses for the upload: %w", err)
	}
	err = errors.Join(write(f), f.Close())
	var in *input
	if err == nil {
		in, err = openNamed(f.Name(), name)
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return nil, err
	}
	return in, nil
}

// openList detects the format of a file and the column with the addresses.
func (in *input) openList(o list.Options) (*list.List, error) {
	return list.Open(in.name, in.File, in.size, o)
}

// makeSendable checks each row of a list as the service will, and returns what to send: the file itself if the
// service accepts it, else one column of it. With mend it corrects rows, and leaves out rows without a certain
// correction.
func (in *input) makeSendable(l *list.List, mend bool, notice func(string)) (*input, error) {
	if !l.Plain() {
		notice(fmt.Sprintf("%s is %s: the addresses are in %s", in.name, l.Form, l.Heading()))
	}
	write := func(w io.Writer) error {
		changes, err := l.Clean(w, mend)
		if err == nil {
			err = in.refuseDefects(changes, mend, notice)
		}
		return err
	}
	if l.Plain() && !mend {
		return in, write(io.Discard)
	}
	return keepInput(in.name, write)
}

// refuseDefects refuses a file with uncorrected defects, and reports the others.
func (in *input) refuseDefects(c list.Changes, mend bool, notice func(string)) error {
	found := &lintView{File: in.name}
	found.addChanges(c, mend, "")
	if n := found.refusedRows(); n > 0 && (!mend || c.Written() == 0) {
		return fmt.Errorf("%s: %s; nothing was uploaded and nothing is charged\n%s\nCorrect the file, or add --fix to "+
			"send only good rows and certain corrections", in.name, rowsText(n), strings.Join(found.firstLines(), "\n"))
	}
	for _, line := range found.firstLines() {
		notice(in.name + ": " + line)
	}
	if c.Skipped > 0 {
		notice(fmt.Sprintf("%s: %s without an address", in.name, term.Counted(c.Skipped, "row")))
	}
	return nil
}
