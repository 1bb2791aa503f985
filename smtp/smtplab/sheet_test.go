package smtplab

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestNetworkOfTheHosts(t *testing.T) {
	for _, c := range []struct {
		name, network, dns string
		want               string // "": fits
	}{
		{"the default", networkText, "127.0.0.1:0", ""},
		{"private", "10.77.0.0/16", "10.77.0.1:53", ""},
		{"private, DNS on loopback", "192.168.7.0/24", "127.0.0.1:0", ""},
		{"the whole of 172.16.0.0/12", "172.16.0.0/12", "127.0.0.1:0", ""},
		{"public", "192.0.2.0/24", "127.0.0.1:0", "Network"},
		{"public before a private part", "172.0.0.0/8", "127.0.0.1:0", "Network"},
		{"public behind a private beginning", "192.168.0.0/15", "127.0.0.1:0", "Network"},
		{"with what must not be dialled", "10.0.0.0/8", "127.0.0.1:0", "Network"},
		{"too small", "10.77.0.0/25", "127.0.0.1:0", "Network"},
		{"an address in it", "10.77.0.1/16", "127.0.0.1:0", "Network"},
		{"IPv6", "fd00::/16", "127.0.0.1:0", "Network"},
		{"DNS elsewhere", "10.77.0.0/16", "10.78.0.1:53", "DNSListen"},
	} {
		o := Defaults()
		o.Network, o.DNSListen = netip.MustParsePrefix(c.network), netip.MustParseAddrPort(c.dns)
		err := o.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %s with DNS at %s: got %v, want %q", c.name, c.network, c.dns, err, c.want)
		}
	}
}

func TestAFullNetworkTakesNoMoreHosts(t *testing.T) {
	l := startLab(t, func(o *Options) { o.Network = netip.MustParsePrefix("127.68.0.0/24") })
	open := func(i int) error {
		name := fmt.Sprintf("d%d-clean.test", i)
		l.mu.Lock()
		defer l.mu.Unlock()
		_, err := l.openHost("mx1."+name, l.receiverOf(name, l.personas["clean"]), true)
		return err
	}
	for i := range 254 { // without the network's own address and the first one
		if err := open(i); err != nil {
			t.Fatalf("host %d: %v", i, err)
		}
	}
	if err := open(254); err != ErrHostsMax {
		t.Errorf("one host more than addresses: got %v, want ErrHostsMax", err)
	}
}

func TestTheSheetIsShownWhileTheLabRuns(t *testing.T) {
	l := startLab(t, func(o *Options) { o.EventsMax = 100 })
	w := dialHost(t, l, "mx1.acme-clean.test")
	w.says("", "220 ")
	w.says("HELO probe.example", "250 ")
	w.says("MAIL FROM:<a@probe.example>", "250 ")
	w.says("RCPT TO:<anna@acme-clean.test>", "250 ")
	w.says("RCPT TO:<nobody@acme-clean.test>", "550 ")
	show := func(method, path string) (int, string) {
		t.Helper()
		answer := httptest.NewRecorder()
		l.ServeHTTP(answer, httptest.NewRequest(method, path, nil))
		text, err := io.ReadAll(answer.Result().Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Code, string(text)
	}
	var sheet Sheet
	if _, text := show("GET", "/sheet"); json.Unmarshal([]byte(text), &sheet) != nil {
		t.Fatalf("no sheet: %s", text)
	}
	if got := sheet.Receivers["acme-clean.test"]; got.SessionsOpen != 1 || got.SessionsAtOnce != 1 ||
		got.SessionsIn60s != 1 || got.RcptsIn1s != 2 || got.Refused != 1 {
		t.Errorf("the sheet of the receiver: got %+v", got)
	}
	for _, c := range []struct {
		name, method, path string
		code               int
		kinds              string
	}{
		{"all events", "GET", "/events", 200, "connect rcpt rcpt"},
		{"later events", "GET", "/events?after=2", 200, "rcpt"},
		{"none yet", "GET", "/events?after=7", 200, ""},
		{"no number", "GET", "/events?after=-1", 400, ""},
		{"nothing there", "GET", "/", 404, ""},
		{"no change", "POST", "/sheet", http.StatusMethodNotAllowed, ""},
	} {
		code, text := show(c.method, c.path)
		var kinds []string
		for line := range strings.Lines(text) {
			var e Event
			if code == 200 && json.Unmarshal([]byte(line), &e) == nil {
				kinds = append(kinds, e.Kind)
			}
		}
		if got := strings.Join(kinds, " "); code != c.code || got != c.kinds {
			t.Errorf("%s: got %d with %q, want %d with %q", c.name, code, got, c.code, c.kinds)
		}
	}
}
