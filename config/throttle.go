package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"rollcall/smtp/shaping"
)

// throttleLookEvery is how often WatchThrottle looks at its file. A look is
// one stat, so a second costs nothing and is soon enough for a person who
// waits for the effect. Looking works on every file system and through the
// symbolic links of container platforms, which notifications do not.
const throttleLookEvery = time.Second

// throttleFile is the form of throttle.toml.
type throttleFile struct {
	Default   Allowance            `toml:"default"`
	Receivers map[string]Allowance `toml:"receivers"`
}

// LoadThrottle gives base with the file base.File read on top of it. A file
// that does not exist changes nothing. Faults are an ErrInvalid with file,
// line and column.
func LoadThrottle(base Throttle) (Throttle, error) {
	if base.File == "" {
		return base, nil
	}
	data, err := readFile(base.File)
	if errors.Is(err, fs.ErrNotExist) {
		return base, nil
	}
	if err != nil {
		return Throttle{}, fmt.Errorf("read %s: %w", base.File, err)
	}
	var f throttleFile
	places := map[string]string{}
	if err := decode(base.File, data, &f, places); err != nil {
		return Throttle{}, err
	}
	merged := base
	merged.Default = overlay(base.Default, f.Default)
	merged.Receivers = map[string]Allowance{}
	for name, a := range base.Receivers {
		merged.Receivers[name] = a
	}
	for name, a := range f.Receivers {
		merged.Receivers[name] = overlay(merged.Receivers[name], a)
	}
	k := &checker{}
	merged.check(k, "")
	if err := locate(k.found, places); err != nil {
		return Throttle{}, err
	}
	return merged, nil
}

// WatchThrottle calls apply with what LoadThrottle gives, each time the file
// base.File has changed, until ctx ends. A file with a fault is logged, with
// line and column, and changes nothing.
func WatchThrottle(ctx context.Context, base Throttle, log *slog.Logger, apply func(Throttle)) {
	watchThrottle(ctx, base, log, apply, throttleLookEvery)
}

func watchThrottle(ctx context.Context, base Throttle, log *slog.Logger, apply func(Throttle),
	every time.Duration) {
	if base.File == "" {
		return
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var last fs.FileInfo // so that a change between start and the first look is seen
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now, err := os.Stat(base.File)
		if err != nil {
			now = nil
		}
		if sameVersion(now, last) {
			continue
		}
		last = now
		t, err := LoadThrottle(base)
		if err != nil {
			log.Error("throttle file not used", "err", err)
			continue
		}
		apply(t)
		log.Info("throttle file loaded", "file", base.File, "receivers", len(t.Receivers))
	}
}

// sameVersion says whether two looks at a file saw the same bytes, as far as
// its identity, size and time can tell; nil stands for no file.
func sameVersion(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// overlay gives a with the fields that b sets.
func overlay(a, b Allowance) Allowance {
	return Allowance{
		Connections:         first(b.Connections, a.Connections),
		ConnectionRate:      first(b.ConnectionRate, a.ConnectionRate),
		RcptRate:            first(b.RcptRate, a.RcptRate),
		RcptsPerConnection:  first(b.RcptsPerConnection, a.RcptsPerConnection),
		RcptsPerTransaction: first(b.RcptsPerTransaction, a.RcptsPerTransaction),
		RefusedPerSession:   first(b.RefusedPerSession, a.RefusedPerSession),
		RefusedPerHour:      first(b.RefusedPerHour, a.RefusedPerHour),
		RefusedShare:        first(b.RefusedShare, a.RefusedShare),
		Pipelining:          first(b.Pipelining, a.Pipelining),
	}
}

func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// Table gives t as the table that shaping works with.
func (t Throttle) Table() (*shaping.Table, error) {
	return shaping.NewTable(t.Rules())
}

// Rules gives t as the rules of shaping.LayerFile.
func (t Throttle) Rules() []shaping.Rule {
	rules := []shaping.Rule{{Set: t.Default.override()}}
	for _, name := range slices.Sorted(maps.Keys(t.Receivers)) {
		rules = append(rules, shaping.Rule{Name: name, Set: t.Receivers[name].override()})
	}
	return rules
}

// override gives a as shaping has it; its values were checked when they were read.
func (a Allowance) override() (o shaping.Override) {
	for f, value := range map[shaping.Field]any{
		shaping.FieldConnections: a.Connections, shaping.FieldConnectionRate: a.ConnectionRate,
		shaping.FieldRcptRate: a.RcptRate, shaping.FieldRcptsPerConnection: a.RcptsPerConnection,
		shaping.FieldRcptsPerTransaction: a.RcptsPerTransaction,
		shaping.FieldRefusedPerSession:   a.RefusedPerSession, shaping.FieldRefusedPerHour: a.RefusedPerHour,
		shaping.FieldRefusedShare: a.RefusedShare, shaping.FieldPipelining: a.Pipelining,
	} {
		var text string
		switch v := value.(type) {
		case *int:
			if v == nil {
				continue
			}
			text = strconv.Itoa(*v)
		case *bool:
			if v == nil {
				continue
			}
			text = strconv.FormatBool(*v)
		case *Rate:
			if v == nil {
				continue
			}
			text = shaping.Rate(*v).String()
		}
		_ = o.Set(f, text)
	}
	return o
}

// check adds the faults of the allowances; prefix is what stands before the
// keys. Rates were checked when they were read.
func (t Throttle) check(k *checker, prefix string) {
	t.Default.check(k, prefix+"default.")
	for _, name := range slices.Sorted(maps.Keys(t.Receivers)) {
		key := prefix + joinKey([]string{"receivers", name})
		_, err := shaping.NewTable([]shaping.Rule{{Name: name}})
		if err != nil {
			k.add(key, "is no usable name: write a receiver, an MX host suffix or a mail domain, such as example.net")
		}
		t.Receivers[name].check(k, key+".")
	}
}

func (a Allowance) check(k *checker, prefix string) {
	for _, n := range []struct {
		key   string
		value *int
		most  int
	}{
		{"connections", a.Connections, shaping.ConnectionsMax},
		{"rcpts_per_connection", a.RcptsPerConnection, shaping.CountMax},
		{"rcpts_per_transaction", a.RcptsPerTransaction, shaping.CountMax},
		{"refused_per_session", a.RefusedPerSession, shaping.CountMax},
		{"refused_per_hour", a.RefusedPerHour, shaping.CountMax},
	} {
		if n.value != nil && (*n.value < 1 || *n.value > n.most) {
			k.add(prefix+n.key, "%d is out of range: write a number from 1 to %d", *n.value, n.most)
		}
	}
	if s := a.RefusedShare; s != nil && (*s < 0 || *s > shaping.ShareMax) {
		k.add(prefix+"refused_share", "%d is out of range: write a percentage from 0 to %d", *s, shaping.ShareMax)
	}
}
