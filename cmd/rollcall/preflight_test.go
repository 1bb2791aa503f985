package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollcall/config"
	"rollcall/smtp/smtplab"
)

func TestPreflight(t *testing.T) {
	t.Parallel()
	lab, err := smtplab.Start(smtplab.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	defer lab.Stop(t.Context())
	silent, err := net.ListenPacket("udp", "127.0.0.1:0") // takes questions, gives no answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, x := range []struct {
		name, list string
		dns        string
		port       int
		seenAt     []string
		want       error
		text       string
	}{
		{"all is well", "a@one-clean.test\n", lab.DNSAddr(), lab.SMTPPort(), nil, nil, ""},
		{"one receiver of three is there", "a@x-unreachable.test\nb@y-nullmx.test\nc@z-clean.test\n",
			lab.DNSAddr(), lab.SMTPPort(), nil, nil, ""},
		{"nobody takes mail", "a@y-nullmx.test\n", lab.DNSAddr(), lab.SMTPPort(), nil, nil, ""},
		{"port closed", "a@one-clean.test\nb@two-clean.test\nc@three-clean.test\n", lab.DNSAddr(), 1,
			nil, errPortClosed, "port 25"},
		{"DNS silent", "a@one-clean.test\n", silent.LocalAddr().String(), lab.SMTPPort(), nil, errDNSAway,
			"[dns] servers"},
		{"file refused", "email\na@a.test\n\n", lab.DNSAddr(), lab.SMTPPort(), nil, nil, "csv_blank_record"},
		{"a name that receivers refuse", "a@one-clean.test\n", lab.DNSAddr(), lab.SMTPPort(), []string{"192.0.2.10"},
			errUnfit, "\nhello 192.0.2.10: \"short\" is no full host name. Set smtp.hello_name to"},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := config.Default()
			c.Identity.PublicAddresses, c.SMTP.HelloName = x.seenAt, "short"
			c.DNS.Servers, c.DNS.Timeout.Duration = []string{x.dns}, time.Second
			c.SMTP.Port, c.SMTP.AllowNetworks = x.port, []string{lab.Network().String()}
			name := filepath.Join(t.TempDir(), "list.csv")
			if err := os.WriteFile(name, []byte(x.list), 0o600); err != nil {
				t.Fatal(err)
			}
			in, err := openInput(name)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			err = preflight(t.Context(), c, in)
			if x.want != nil && !errors.Is(err, x.want) || (err == nil) != (x.want == nil && x.text == "") {
				t.Errorf("got %v, want %v", err, x.want)
			}
			if err != nil && !strings.Contains(err.Error(), x.text) {
				t.Errorf("got %v, want %q in it", err, x.text)
			}
		})
	}
}
