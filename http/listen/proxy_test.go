package listen

import (
	"net/netip"
	"testing"

	"rollcall/config/effort"
)

func TestParseTrusted(t *testing.T) {
	t.Parallel()
	good := effort.Must(ParseTrusted([]string{"10.0.0.0/8", "192.0.2.1", "::ffff:192.0.2.2", "2001:db8::/32",
		"10.1.2.3/16"}))(t)
	for text, want := range map[string]bool{
		"10.255.0.1": true, "11.0.0.0": false, "192.0.2.1": true, "192.0.2.2": true, "192.0.2.3": false,
		"2001:db8::1": true, "2001:db9::1": false, "::ffff:10.0.0.1": true, "fe80::1%eth0": false,
	} {
		effort.Is(t, good.Contains(netip.MustParseAddr(text)), want, "contains", text, !want)
	}
	if good.Contains(netip.Addr{}) || (Trusted{}).Contains(netip.MustParseAddr("127.0.0.1")) {
		t.Error("nobody is trusted")
	}
	for _, bad := range []string{"", "10.0.0.0/33", "proxy.example.com", "10.0.0.1:80", "fe80::1%eth0", "10.0.0"} {
		effort.Denied(ParseTrusted([]string{bad}))(t, ErrNetwork, bad)
	}
}

func TestClientOfARequest(t *testing.T) {
	t.Parallel()
	trusted := effort.Must(ParseTrusted([]string{"10.0.0.0/8", "2001:db8::/32"}))(t)
	for _, c := range []struct {
		name, connected string
		lines           []string
		want            string
	}{
		{"no proxy", "192.0.2.1", nil, "192.0.2.1"},
		{"a stranger's line is ignored", "192.0.2.1", []string{"198.51.100.1"}, "192.0.2.1"},
		{"a proxy without a line", "10.0.0.1", nil, "10.0.0.1"},
		{"one hop", "10.0.0.1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"what the client wrote himself", "10.0.0.1", []string{"203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		{"two proxies", "10.0.0.1", []string{"203.0.113.9, 198.51.100.1,10.0.0.2"}, "198.51.100.1"},
		{"two lines", "10.0.0.1", []string{"203.0.113.9, 198.51.100.1", "10.0.0.3, 10.0.0.2"}, "198.51.100.1"},
		{"all are proxies", "10.0.0.1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"spaces and tabs", "10.0.0.1", []string{"203.0.113.9 ,\t198.51.100.1 "}, "198.51.100.1"},
		{"with ports", "10.0.0.1", []string{"198.51.100.1:4711, 10.0.0.2:80"}, "198.51.100.1"},
		{"IPv6", "2001:db8::1", []string{"2001:db9::5"}, "2001:db9::5"},
		{"IPv6 with a port", "2001:db8::1", []string{"[2001:db9::5]:443"}, "2001:db9::5"},
		{"mapped IPv4", "::ffff:10.0.0.1", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"a word", "10.0.0.1", []string{"198.51.100.1, unknown"}, "10.0.0.1"},
		{"a word left of a proxy", "10.0.0.1", []string{"unknown, 10.0.0.2"}, "10.0.0.2"},
		{"an empty hop", "10.0.0.1", []string{"198.51.100.1,"}, "10.0.0.1"},
		{"an empty line", "10.0.0.1", []string{"198.51.100.1", ""}, "10.0.0.1"},
	} {
		var lines [][]byte
		for _, l := range c.lines {
			lines = append(lines, []byte(l))
		}
		effort.Is(t, trusted.Client(netip.MustParseAddr(c.connected), lines), netip.MustParseAddr(c.want), c.name, c.want)
	}
	if got := trusted.Client(netip.Addr{}, [][]byte{[]byte("192.0.2.1")}); got.IsValid() {
		t.Errorf("a connection without an address has %s", got)
	}
}
