package secure

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
)

// folder is a folder with the three files of a node, and the CA to make others.
type folder struct {
	t             *testing.T
	ca            *Authority
	caFile        string
	cert, keyFile string
	log           bytes.Buffer
}

func newFolder(t *testing.T) *folder {
	t.Helper()
	dir := t.TempDir()
	f := &folder{t: t, caFile: filepath.Join(dir, "ca.crt"), cert: filepath.Join(dir, "a.crt"),
		keyFile: filepath.Join(dir, "a.key")}
	f.ca = newCA(t)
	f.write(f.caFile, f.ca.Pair().Cert)
	f.put(f.issue("a", time.Now(), 90*24*time.Hour))
	return f
}

func newCA(t *testing.T) *Authority {
	t.Helper()
	return effort.Must(NewAuthority("test", time.Now(), AuthorityValidity))(t)
}

func (f *folder) issue(name string, now time.Time, validity time.Duration) Pair {
	f.t.Helper()
	return effort.Must(f.ca.Issue(name, now, validity))(f.t)
}

// write replaces a file and increases its modification time, also on file systems that keep only whole seconds.
func (f *folder) write(file string, text []byte) {
	f.t.Helper()
	before, err := os.Stat(file)
	effort.OK(f.t, os.WriteFile(file, text, 0o600))
	if err == nil {
		later := before.ModTime().Add(time.Second)
		effort.OK(f.t, os.Chtimes(file, later, later))
	}
}

func (f *folder) put(pair Pair) {
	f.t.Helper()
	f.write(f.cert, pair.Cert)
	f.write(f.keyFile, pair.Key)
}

func (f *folder) load() (*Identity, error) {
	return Load(f.caFile, f.cert, f.keyFile, slog.New(slog.NewTextHandler(&f.log, nil)))
}

func TestLoad(t *testing.T) {
	f := newFolder(t)
	i := effort.Must(f.load())(t)
	effort.ErrorIf(t, i.Name() != "a" || time.Until(i.Expires()) < 89*24*time.Hour,
		"name %q, expires %s", i.Name(), i.Expires())
	registry := prometheus.NewRegistry()
	i.Register(registry)
	families := effort.Must(registry.Gather())(t)
	effort.MustBe(t, len(families), 1, "metrics")
	v := families[0].Metric[0].Gauge.GetValue()
	effort.ErrorIf(t, v < 89*24*3600 || v > 90*24*3600, "the certificate ends in %f s, want 90 days", v)
	effort.ErrorIf(t, f.log.Len() > 0, "logged: %s", &f.log)
}

func TestLoadRefuses(t *testing.T) {
	now, day := time.Now(), 24*time.Hour
	for _, c := range []struct {
		name   string
		spoil  func(f *folder)
		want   error
		inText string
	}{
		{"no CA file", func(f *folder) { os.Remove(f.caFile) }, fs.ErrNotExist, "ca.crt"},
		{"no certificate file", func(f *folder) { os.Remove(f.cert) }, fs.ErrNotExist, "a.crt"},
		{"no key file", func(f *folder) { os.Remove(f.keyFile) }, fs.ErrNotExist, "a.key"},
		{"a key that all may read", func(f *folder) { os.Chmod(f.keyFile, 0o644) }, ErrKeyReadable, "0644"},
		{"a key that the group may write", func(f *folder) { os.Chmod(f.keyFile, 0o660) }, ErrKeyReadable, "0660"},
		{"no PEM in the CA file", func(f *folder) { f.write(f.caFile, []byte("x")) }, ErrCertificate, "ca.crt"},
		{"no PEM in the certificate file", func(f *folder) { f.write(f.cert, nil) }, ErrCertificate, "a.crt"},
		{"the key of another certificate", func(f *folder) { f.write(f.keyFile, f.issue("a", now, day).Key) },
			ErrCertificate, "a.key"},
		{"another CA", func(f *folder) { f.write(f.caFile, newCA(f.t).Pair().Cert) }, ErrCertificate, "vouch"},
		{"the CA's own certificate", func(f *folder) { f.put(f.ca.Pair()) }, ErrCertificate, "DNS name"},
		{"an end in the past", func(f *folder) { f.put(f.issue("a", now.Add(-2*day), day)) }, ErrCertificate,
			"is the clock right"},
		{"a begin in the future", func(f *folder) { f.put(f.issue("a", now.Add(day), day)) }, ErrCertificate,
			"is the clock right"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFolder(t)
			c.spoil(f)
			_, err := f.load()
			effort.ErrorIf(t, !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.inText),
				"got %v, want %v with %q", err, c.want, c.inText)
		})
	}
}

func TestARenewedCertificateIsUsed(t *testing.T) {
	f := newFolder(t)
	i := effort.Must(f.load())(t)
	now := time.Now()
	old := i.Expires()
	f.put(f.issue("a", now, 200*24*time.Hour))
	got := i.current(now).cert.Leaf.NotAfter
	effort.ErrorIf(t, !got.Equal(old), "the files were looked at within %s", lookEvery)
	got = i.current(now.Add(2 * lookEvery)).cert.Leaf.NotAfter
	effort.ErrorIf(t, !got.After(old.Add(100*24*time.Hour)), "expires %s, want the renewed certificate's end", got)
}

func TestAChangeThatCannotBeUsedKeepsTheOld(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name   string
		change func(f *folder, renewed Pair)
		inLog  string
	}{
		{"half of it", func(f *folder, renewed Pair) { f.write(f.cert, renewed.Cert) }, "does not match"},
		{"another CA's", func(f *folder, _ Pair) {
			pair := effort.Must(newCA(f.t).Issue("a", now, time.Hour))(f.t)
			f.put(pair)
		}, "vouch"},
		{"another name's", func(f *folder, _ Pair) { f.put(f.issue("b", now, time.Hour)) }, "b"},
		{"nothing", func(f *folder, _ Pair) { os.Remove(f.cert) }, "no such file"},
		{"readable by all", func(f *folder, renewed Pair) {
			f.put(renewed)
			os.Chmod(f.keyFile, 0o604)
		}, "0604"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFolder(t)
			i := effort.Must(f.load())(t)
			old := i.Expires()
			renewed := f.issue("a", now, 200*24*time.Hour)
			c.change(f, renewed)
			for n := range 3 {
				m := i.current(now.Add(time.Duration(n+1) * 2 * lookEvery))
				effort.FatalIf(t, !m.cert.Leaf.NotAfter.Equal(old) || m.name != "a",
					"now %s until %s, want the old one until %s", m.name, m.cert.Leaf.NotAfter, old)
			}
			told := f.log.String()
			if n := strings.Count(told, "the old ones stay"); n != 1 || !strings.Contains(told, c.inLog) {
				t.Errorf("logged %d times, want once and with %q:\n%s", n, c.inLog, told)
			}
			os.Chmod(f.keyFile, 0o600)
			f.put(renewed)
			got := i.current(now.Add(10 * lookEvery)).cert.Leaf.NotAfter
			effort.ErrorIf(t, !got.After(old), "expires %s after the change was made good", got)
		})
	}
}

func TestTheEndIsToldOnceADayFromAMonthBefore(t *testing.T) {
	f := newFolder(t)
	i := effort.Must(f.load())(t)
	for _, c := range []struct {
		before time.Duration // the end
		want   int           // warnings so far
	}{
		{31 * 24 * time.Hour, 0},
		{30 * 24 * time.Hour, 1},
		{29*24*time.Hour + time.Hour, 1},
		{29 * 24 * time.Hour, 2},
		{-time.Hour, 3},
	} {
		i.current(i.now.cert.Leaf.NotAfter.Add(-c.before))
		effort.Is(t, strings.Count(f.log.String(), "ends soon"), c.want, fmt.Sprintf("%s before the end", c.before))
	}
}

func TestTheCAFileMayHoldSeveralAndTheGroupReadTheKey(t *testing.T) {
	f := newFolder(t)
	f.write(f.caFile, append(newCA(t).Pair().Cert, f.ca.Pair().Cert...))
	effort.OK(t, os.Chmod(f.keyFile, 0o440))
	effort.Denied(f.load())(t, nil)
}
