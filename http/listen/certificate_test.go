package listen_test

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/http/listen"
)

func TestReload(t *testing.T) {
	t.Parallel()
	folder, now := t.TempDir(), time.Now()
	first, second := now.Add(time.Hour).Truncate(time.Second), now.Add(2*time.Hour).Truncate(time.Second)
	certFile, keyFile, _ := nettest.WriteCertificate(t, folder, first)
	p, err := listen.LoadPair(certFile, keyFile)
	if err != nil || !p.End().Equal(first) {
		t.Fatalf("load: end %v, %v", p.End(), err)
	}
	nettest.WriteCertificate(t, folder, now.Add(-time.Minute))
	if err := p.Reload(now); !errors.Is(err, listen.ErrCertificateEnded) || !p.End().Equal(first) {
		t.Errorf("one that has ended: end %v, %v", p.End(), err)
	}
	nettest.WriteCertificate(t, folder, second)
	if err := p.Reload(now.Add(-2 * time.Hour)); !errors.Is(err, listen.ErrCertificateEnded) || !p.End().Equal(first) {
		t.Errorf("one that has not begun: end %v, %v", p.End(), err)
	}
	if err := p.Reload(now); err != nil || !p.End().Equal(second) {
		t.Errorf("a good one: end %v, %v", p.End(), err)
	}
	other, _, _ := nettest.WriteCertificate(t, t.TempDir(), second)
	text := effort.Must(os.ReadFile(other))(t)
	for name, content := range map[string][]byte{"of another key": text, "half": text[:len(text)/2], "nothing": nil} {
		effort.OK(t, os.WriteFile(certFile, content, 0o600))
		if err := p.Reload(now); err == nil || !p.End().Equal(second) {
			t.Errorf("%s: end %v, %v", name, p.End(), err)
		}
	}
	effort.OK(t, os.Remove(keyFile))
	if err := p.Reload(now); !errors.Is(err, fs.ErrNotExist) || !p.End().Equal(second) {
		t.Errorf("no key: end %v, %v", p.End(), err)
	}
	effort.Denied(listen.LoadPair(certFile, keyFile))(t, fs.ErrNotExist, "load without a key")
}

// TestAnEndedCertificateIsLoaded: a node starts even if its certificate has expired.
func TestAnEndedCertificateIsLoaded(t *testing.T) {
	t.Parallel()
	end := time.Now().Add(-time.Hour).Truncate(time.Second)
	certFile, keyFile, _ := nettest.WriteCertificate(t, t.TempDir(), end)
	p, err := listen.LoadPair(certFile, keyFile)
	effort.ErrorIf(t, err != nil || !p.End().Equal(end), "end %v, %v", p, err)
}
