package list

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"

	"rollcall/actors/intake"
)

// errStopped ends a walk at its visitor's wish.
var errStopped = errors.New("stopped")

// Walk checks each row as the service will: address is called with the address of each row that has a good one, and
// defect with what is wrong with others, until it returns false. Rows without an address in a list that the service
// would not take as it is are nobody's fault; skipped says how many there are.
func (l *List) Walk(address func(text string), defect func(*intake.Defect) bool) (skipped int64, err error) {
	if l.Plain() {
		_, err := intake.Inspect(io.NewSectionReader(l.source, 0, l.size), intake.Limits{RowsMax: intake.RowsCeiling},
			address, defect)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", l.Name, err)
		}
		return 0, nil
	}
	found := false
	err = l.eachBodyRow(func(r row) error {
		text := r.cellOf(l.Column)
		d := intake.Check(text, r.number)
		switch {
		case d == nil || d.Note():
			found = true
			if address(text); d != nil && !defect(d) {
				return errStopped
			}
		case d.Kind == intake.KindBlank:
			skipped++
		default:
			if found = true; !defect(d) {
				return errStopped
			}
		}
		return nil
	})
	if err == nil && !found {
		defect(intake.NoAddresses())
	}
	if errors.Is(err, errStopped) {
		err = nil
	}
	return skipped, err
}

// Changes are what a clean copy differs in.
type Changes struct {
	Kept      int64            // addresses as they were
	Corrected []*intake.Defect // rows that mean an address, which was written instead
	LeftOut   []*intake.Defect // rows that mean none for certain; and notes
	Skipped   int64            // rows without an address
}

// Written is the number of addresses of the copy.
func (c Changes) Written() (n int64) {
	n = c.Kept
	for _, d := range c.Corrected {
		n += int64(len(d.Means))
	}
	return n
}

// Clean writes the addresses of a list as the service takes them: one in each row, those corrected that mean one. With
// mend false rows with defects are left out.
func (l *List) Clean(w io.Writer, mend bool) (c Changes, err error) {
	buffer := bufio.NewWriter(w)
	out := csv.NewWriter(buffer)
	c.Skipped, err = l.Walk(func(text string) {
		c.Kept++
		_ = out.Write([]string{text}) // out.Error has what failed
	}, func(d *intake.Defect) bool {
		if !mend || d.Kind == intake.KindBeside || len(d.Means) == 0 {
			c.LeftOut = append(c.LeftOut, d)
			return true
		}
		c.Corrected = append(c.Corrected, d)
		for _, text := range d.Means {
			_ = out.Write([]string{text})
		}
		return true
	})
	out.Flush()
	return c, errors.Join(err, out.Error(), buffer.Flush())
}

// sent is the address that the service was given for a cell; "" when for none.
func sent(text string, number int64, mend bool) string {
	d := intake.Check(text, number)
	switch {
	case d == nil || d.Note():
		return text
	case mend && len(d.Means) == 1:
		return d.Means[0]
	}
	return ""
}
