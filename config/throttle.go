package config

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"rollcall/smtp/throttle"
)

const (
	// throttleLookEvery is how often ThrottleFile.Watch looks at its file: soon enough for a
	// person who waits for the effect. Looking works on every file system and through the
	// symbolic links of container platforms, which notifications do not.
	throttleLookEvery = time.Second

	// throttleSmall is up to which size a look reads the file, and compares its content. Of a
	// larger one that has the identity, size and time of before every throttleReadEvery-th
	// look does. Guess: a megabyte is hashed in a millisecond.
	throttleSmall     = 1 << 20
	throttleReadEvery = 30
)

// throttleForm is the form of throttle.toml.
type throttleForm struct {
	Default   Allowance            `toml:"default"`
	Receivers map[string]Allowance `toml:"receivers"`
	Sources   map[string]Source    `toml:"sources"`
}

// LoadThrottle gives the rules of base with those of the file base.File after
// them. A file that does not exist adds none. Faults are an ErrInvalid with file,
// line and column.
func LoadThrottle(base Throttle) ([]throttle.Rule, error) {
	if base.File == "" {
		return base.Rules(), nil
	}
	text, err := readFile(base.File)
	if errors.Is(err, fs.ErrNotExist) {
		return base.Rules(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", base.File, err)
	}
	file, findings := parseThrottle(base.File, text)
	if err := invalid(findings); err != nil {
		return nil, err
	}
	return append(base.Rules(), file.Rules()...), nil
}

// CheckThrottle gives the rules that LoadThrottle would give for another file, which
// has to exist, and everything that somebody should know about them first. With an
// error among the findings there are no rules.
func CheckThrottle(file string, base Throttle) (rules []throttle.Rule, findings []Finding, err error) {
	text, err := readFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", file, err)
	}
	rules, findings = CheckThrottleText(file, text, base)
	return rules, findings, nil
}

// CheckThrottleText is CheckThrottle of the text of a file, which is elsewhere.
func CheckThrottleText(file string, text []byte, base Throttle) (rules []throttle.Rule, findings []Finding) {
	candidate, findings := parseThrottle(file, text)
	if len(findings) > 0 {
		return nil, findings
	}
	both := base.rules()
	before := len(both)
	both = append(both, candidate.rules()...)
	rules = plain(both)
	for _, doubt := range throttle.Check(rules) {
		r, at := both[doubt.Rule], candidate.places
		if doubt.Rule < before {
			at = base.places
		}
		key := r.key
		if doubt.Field != 0 {
			key += "." + doubt.Field.String()
		}
		place, _ := at.nearest(key)
		findings = append(findings, place.finding(SeverityWarning, key+": "+doubt.Text))
	}
	inOrder(findings, file)
	return rules, findings
}

// inOrder puts what was found in a file in the order of its lines, behind what was found
// elsewhere.
func inOrder(findings []Finding, file string) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		switch {
		case a.File != b.File && a.File == file:
			return 1
		case a.File != b.File && b.File == file:
			return -1
		}
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// parseThrottle reads the text of a file of throttles. Findings are its faults.
func parseThrottle(file string, data []byte) (Throttle, []Finding) {
	var form throttleForm
	at := places{}
	findings := decode(file, data, &form, at)
	t := Throttle{Default: form.Default, Receivers: form.Receivers, Sources: form.Sources, places: at}
	if len(findings) > 0 {
		t = namesOf(at)
	}
	k := &checker{}
	t.check(k, "")
	findings = append(findings, at.locate(k.found)...)
	inOrder(findings, file)
	return t, findings
}

// namesOf gives the names of a file whose values have faults, by the places of its keys, so
// that all are told at once.
func namesOf(at places) Throttle {
	t := Throttle{Receivers: map[string]Allowance{}, Sources: map[string]Source{}, places: at}
	for key := range at {
		switch parts := splitKey(key); {
		case len(parts) < 2:
		case parts[0] == "receivers":
			t.Receivers[parts[1]] = Allowance{}
		case parts[0] == "sources":
			t.Sources[parts[1]] = Source{}
		}
	}
	return t
}

// ThrottleState is what of the throttle file is in effect.
type ThrottleState struct {
	File  string
	Found bool            // whether there was a file when the rules were loaded
	Rules []throttle.Rule // in effect: of the configuration, then of the file
	At    time.Time       // when they were loaded

	// Changes are what the last look changed; nil after the first and with Err.
	Changes []throttle.Change

	// Err is why the file as it is now is not used, an ErrInvalid with line and column
	// or what kept it from being read; nil when it is.
	Err error
	// ErrAt is when Err was found.
	ErrAt time.Time
}

// ThrottleFile follows the throttle file of a node. State may be called at any time.
type ThrottleFile struct {
	base  Throttle
	every time.Duration
	seen  fs.FileInfo // of the last look; nil: there was no file
	sum   string      // of its content then
	looks int         // since the content was read
	state atomic.Pointer[ThrottleState]
}

// OpenThrottle loads what LoadThrottle does, with its errors.
func OpenThrottle(base Throttle) (*ThrottleFile, error) {
	f := &ThrottleFile{base: base, every: throttleLookEvery}
	f.seen, f.sum = f.look(), f.content()
	rules, err := LoadThrottle(base)
	if err != nil {
		return nil, err
	}
	f.state.Store(&ThrottleState{File: base.File, Found: f.seen != nil, Rules: rules, At: time.Now()})
	return f, nil
}

// State is what is in effect, and why not more.
func (f *ThrottleFile) State() ThrottleState { return *f.state.Load() }

// Watch calls apply each time the file has changed, until ctx ends: with other rules, or
// with Err and the rules as they were. A file with a fault is logged, with line and
// column, and changes nothing.
func (f *ThrottleFile) Watch(ctx context.Context, log *slog.Logger, apply func(ThrottleState)) {
	if f.base.File == "" {
		return
	}
	ticker := time.NewTicker(f.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if state, changed := f.again(); changed {
			if state.Err != nil {
				log.Error("throttle file not used", "err", state.Err)
			} else {
				log.Info("throttle file loaded", "file", f.base.File, "rules", len(state.Rules),
					"changes", len(state.Changes))
			}
			apply(state)
		}
	}
}

// again looks at the file once more and loads it if its content is another than at the last
// look. A file may be changed and keep its size and time.
func (f *ThrottleFile) again() (state ThrottleState, changed bool) {
	now := f.look()
	f.looks++
	if sameVersion(now, f.seen) && (now == nil || now.Size() > throttleSmall && f.looks < throttleReadEvery) {
		return state, false
	}
	f.seen, f.looks = now, 0
	sum := f.content()
	if sum == f.sum {
		return state, false
	}
	f.sum = sum
	state = f.load(now != nil)
	f.state.Store(&state)
	return state, true
}

// load gives the state after another look at the file.
func (f *ThrottleFile) load(found bool) ThrottleState {
	state := f.State()
	rules, err := LoadThrottle(f.base)
	if err != nil {
		state.Changes, state.Err, state.ErrAt = nil, err, time.Now()
		return state
	}
	return ThrottleState{File: f.base.File, Found: found, Rules: rules, At: time.Now(),
		Changes: throttle.Diff(state.Rules, rules)}
}

// look gives the file as it is now; nil when there is none.
func (f *ThrottleFile) look() fs.FileInfo {
	if f.base.File == "" {
		return nil
	}
	now, err := os.Stat(f.base.File)
	if err != nil {
		return nil
	}
	return now
}

// content gives a hash of what stands in the file; "" when there is none, and why not when it
// cannot be read.
func (f *ThrottleFile) content() string {
	if f.base.File == "" {
		return ""
	}
	text, err := readFile(f.base.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil:
		return err.Error()
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// sameVersion says whether two looks at a file saw the same bytes, as far as
// its identity, size and time can tell; nil stands for no file.
func sameVersion(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
