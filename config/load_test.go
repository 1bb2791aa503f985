package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp/throttle"
)

// write puts text into a file called rollcall.toml and gives its path.
func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rollcall.toml")
	effort.OK(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestFaultsAreToldWithTheirPlaceAndWhatToDo(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"misspelled key", "[smtp]\nprot = 2\n", `2:1: unknown key "smtp.prot": did you mean "smtp.port"?`},
		{"nothing like it", "foo = 1\n", `1:1: unknown key "foo": the known ones are in docs/operators/config.md`},
		{"misspelled table", "[smpt]\nport = 3\n", `1:2: unknown key "smpt": did you mean "smtp"?`},
		{"key of another table", "[http]\nport = 3\n", `2:1: unknown key "http.port": did you mean "smtp.port"?`},
		{"key like no other", "\n\n  frobnicate = 1\n", `3:3: unknown key "frobnicate": the known ones`},
		{"misspelled key of a receiver", "[throttle.receivers.\"a.test\"]\nconections = 3\n",
			`2:1: unknown key "throttle.receivers.\"a.test\".conections": did you mean "throttle.receivers.*.connections"?`},
		{"text for a number", "[smtp]\nport = \"x\"\n", "2:1: smtp.port: write a whole number"},
		{"number for a text", "data_dir = 1\n", "1:1: data_dir: write a text in quotes"},
		{"number for a time", "[dns]\n\n  timeout = 5\n", "3:3: dns.timeout: write a time in quotes"},
		{"number for a rate", "[throttle.default]\nrcpt_rate = 5\n",
			"2:1: throttle.default.rcpt_rate: write a rate in quotes"},
		{"text for a list", "[dns]\nservers = \"127.0.0.1:53\"\n", "2:1: dns.servers: write a list of texts"},
		{"text for yes or no", "[throttle.default]\npipelining = \"yes\"\n",
			"2:1: throttle.default.pipelining: write true or false"},
		{"proxy by name", "[http]\ntrusted_proxies = [\"10.0.0.1\", \"proxy.test\"]\n",
			`2:1: http.trusted_proxies: "proxy.test" is neither an address nor a network`},
		{"value for a table", "smtp = 3\n", "1:1: smtp: this is a table: write [smtp]"},
		{"unknown unit of time", "[dns]\ntimeout = \"5x\"\n", `2:11: dns.timeout: "5x" is not a time`},
		{"wait without a unit", "[retry]\ngreylist_waits = [\"5m\", \"7\"]\n",
			`2:25: retry.greylist_waits: "7" is not a time`},
		{"unknown unit of a rate", "[throttle.default]\nrcpt_rate = \"5/fortnight\"\n",
			`2:13: throttle.default.rcpt_rate: "5/fortnight" is not a rate`},
		{"no such port", "[smtp]\nport = 0\n", "2:1: smtp.port: 0 is not a port: write a number from 1 to 65535"},
		{"beyond 64 bits", "[smtp]\nport = 99999999999999999999\n", "2:8: smtp.port: decimal number is too large"},
		{"said twice", "[smtp]\nport = 1\nport = 2\n", "3:1: port: key port is already defined"},
		{"broken syntax", "[dns\n", "1:5: expected ']'"},
		{"receiver without connections", "[throttle.receivers.\"a.test\"]\nconnections = 0\n",
			`2:1: throttle.receivers."a.test".connections: `},
		{"listener without port", "[http]\nlisten = \"127.0.0.1\"\n", `2:1: http.listen: "127.0.0.1" is not host:port`},
		{"pages that everybody reaches, files that nobody sends", "[http]\npublic_url = \"https://r.example\"\n",
			"upload.public_url: browsers that open the pages at https://r.example may not reach http://127.0.0.1:8082"},
		{"contact of two lines", "[dashboard]\ncontact = \"a\\nb\"\n", "2:1: dashboard.contact: write at most 200 bytes on one line"},
		{"idle longer than life", "[dashboard]\nsession_idle = \"200h\"\n", "2:1: dashboard.session_idle: "},
		{"issuer in clear", oidc("http://login.test"), `2:1: dashboard.oidc_issuer: "http://login.test" is not an issuer`},
		{"issuer with a query", oidc("https://login.test?a=b"), `2:1: dashboard.oidc_issuer: "https://login.test?a=b" is not an issuer`},
		{"issuer without a scheme", oidc("login.test"), `2:1: dashboard.oidc_issuer: "login.test" is not an issuer`},
		{"issuer alone", "[dashboard]\noidc_issuer = \"https://login.test\"\n",
			"1:2: dashboard.oidc_client_id: is empty: oidc_issuer, oidc_client_id and oidc_secret_file belong together"},
		{"secret alone", "[dashboard]\noidc_secret_file = \"/x\"\n", "1:2: dashboard.oidc_issuer: is empty: oidc_issuer, "},
		{"provider without a name", "[dashboard]\noidc_name = \"\"\n", "2:1: dashboard.oidc_name: write 1 to 50 bytes on one line"},
		{"session for ever", "[dashboard]\nsession_life = \"9000h\"\n", "2:1: dashboard.session_life: "},
		{"certificate without key", "[http]\ntls_cert = \"a\"\n",
			"2:1: http.tls_cert: http.tls_cert and http.tls_key belong together"},
		{"key without certificate", "[admin]\ntls_key = \"a\"\n", "2:1: admin.tls_key: admin.tls_cert and admin.tls_key belong together"},
		{"relative socket", "[admin]\nlisten = \"unix:admin.sock\"\n",
			`2:1: admin.listen: "unix:admin.sock" is not a usable socket`},
		{"long socket", "[admin]\nlisten = \"unix:/" + strings.Repeat("a", 107) + "\"\n", "2:1: admin.listen: "},
		{"host with a port", "[admin]\nhosts = [\"node.test:80\"]\n", `2:1: admin.hosts: "node.test:80" is not a host`},
		{"two listeners on one port", "[admin]\nlisten = \"127.0.0.1:8080\"\n",
			"2:1: admin.listen: 127.0.0.1:8080 is http.listen too"},
		{"base URL with a slash", "[http]\npublic_url = \"https://api.test/\"\n", "2:1: http.public_url: "},
		{"origin with a path", "[http]\nallowed_origins = [\"https://a.test/x\"]\n", "2:1: http.allowed_origins: "},
		{"any origin", "[http]\nallowed_origins = [\"*\"]\n", "2:1: http.allowed_origins: "},
		{"resolver without port", "[dns]\nservers = [\"192.0.2.1\"]\n", "2:1: dns.servers: "},
		{"hello name with a space", "[smtp]\nhello_name = \"a b\"\n", "2:1: smtp.hello_name: "},
		{"return path without domain", "[smtp]\nreturn_path = \"root\"\n", "2:1: smtp.return_path: "},
		{"source that is no address", "[smtp]\nsource_addresses = [\"eth0\"]\n", "2:1: smtp.source_addresses: "},
		{"network without length", "[smtp]\nallow_networks = [\"127.0.0.1\"]\n", "2:1: smtp.allow_networks: "},
		{"seen at a name", "[identity]\npublic_addresses = [\"mail.test\"]\n",
			`2:1: identity.public_addresses: "mail.test" is not an IP address`},
		{"too many addresses", "[identity]\npublic_addresses = [" + strings.Repeat(`"192.0.2.1",`, 65) + "]\n",
			"2:1: identity.public_addresses: 65 addresses are too many: write at most 64"},
		{"host with a port", "[identity]\nreach = [\"mail.test:25\"]\n", "2:1: identity.reach: "},
		{"too many lists", "[identity]\nblock_lists = [" + strings.Repeat(`"bl.test",`, 9) + "]\n",
			"2:1: identity.block_lists: 9 names are too many: write at most 8"},
		{"no waits", "[retry]\ngreylist_waits = []\n", "2:1: retry.greylist_waits: 0 waits: write from 1 to 24"},
		{"wait of nothing", "[retry]\ngreylist_waits = [\"0s\"]\n", "2:1: retry.greylist_waits: 0s is too short"},
		{"upload for ever", "[upload]\nexpires_after = \"1000h\"\n", "2:1: upload.expires_after: 1000h is out of range"},
		{"unknown database", "[ledger]\nurl = \"mysql://x\"\n", "2:1: ledger.url: is not a ledger: write " + "sqlite:PATH"},
		{"unknown level", "[log]\nlevel = \"loud\"\n",
			`2:1: log.level: "loud" is not known: write one of debug, info, warn, error`},
		{"half a TLS identity", "[cluster]\ntls_ca_file = \"ca.pem\"\n", "2:1: cluster.tls_ca_file: "},
		{"gossip in the open", "[cluster]\ngossip_listen = \"192.0.2.2:7946\"\n",
			"1:2: cluster.gossip_key_file: is required off loopback, where anybody could join: make one with " +
				"`rollcall cluster keys new FILE`"},
		{"messages in the open", "[cluster]\nactor_listen = \"192.0.2.2:7947\"\ngossip_key_file = \"k\"\n",
			"1:2: cluster.tls_ca_file: mutual TLS is required off loopback, where anybody could send messages to this node: " +
				"make certificates with `rollcall cluster cert`"},
		{"advertised in the open", "[cluster]\nadvertise = \"node1.test\"\n", "1:2: cluster.gossip_key_file: "},
		{"advertised with a port", "[cluster]\nadvertise = \"127.0.0.1:7946\"\n",
			`2:1: cluster.advertise: "127.0.0.1:7946" is not a host`},
		{"all interfaces and no name", "[cluster]\ngossip_listen = \":7946\"\n", "1:2: cluster.advertise: is required"},
		{"nodes that share an embedded ledger", "[cluster]\njoin = [\"127.0.0.1:7950\"]\n",
			"2:1: cluster.join: several nodes cannot work on ledger.url sqlite:...: the embedded ledger is one"},
		{"no networks", "[cluster]\nallow_networks = []\n", "2:1: cluster.allow_networks: is empty"},
		{"address for a network", "[cluster]\nallow_networks = [\"10.0.0.1\"]\n",
			`2:1: cluster.allow_networks: "10.0.0.1" is not a network`},
		{"long cluster name", "[cluster]\nname = \"" + strings.Repeat("x", 256) + "\"\n", "2:1: cluster.name: has 256"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, c.text)
			_, err := Load(file, nil)
			effort.FatalIf(t, !errors.Is(err, ErrInvalid), "%q: got error %v, want ErrInvalid", c.text, err)
			want := c.want
			if want[0] >= '0' && want[0] <= '9' {
				want = file + ":" + want
			}
			effort.ErrorIf(t, !strings.HasPrefix(err.Error(), want), "%q:\n got %s\nwant %s...", c.text, err, want)
		})
	}
}

func TestMissingFile(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.toml"), nil)
	effort.ErrorIf(t, !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrInvalid),
		"got %v, want an error that wraps fs.ErrNotExist", err)
}

func TestEnvironmentGoesBeforeFileAndFileBeforeDefault(t *testing.T) {
	file := write(t, "[smtp]\nport = 2525\nhello_name = \"file.test\"\n")
	c := effort.Must(Load(file, []string{"ROLLCALL_SMTP_HELLO_NAME=environ.test", "PATH=/bin"}))(t)
	effort.ErrorIf(t, c.SMTP.Port != 2525 || c.SMTP.HelloName != "environ.test" || c.Admin.Listen != "127.0.0.1:8081",
		"got port %d, hello name %q, admin %q", c.SMTP.Port, c.SMTP.HelloName, c.Admin.Listen)
}

// TestSharesThatLeaveNothingForOthersAreRefused, and those that no machine has.
func TestSharesThatLeaveNothingForOthersAreRefused(t *testing.T) {
	for text, fine := range map[string]bool{
		"http.connections = 2":                             true,
		"http.connections = 1":                             false,
		"http.connections = 65537":                         false,
		"upload.at_once = 2":                               true,
		"upload.at_once = 1":                               false,
		"upload.at_once = 4097":                            false,
		"upload.at_once = 64\nupload.connections = 64":     false,
		"upload.at_once = 64\nupload.connections = 65":     true,
		"upload.connections = 65537":                       false,
		"upload.bytes_per_second = 0":                      true,
		"upload.bytes_per_second = 262144":                 true,
		"upload.bytes_per_second = 262143":                 false,
		"upload.bytes_per_second = -1":                     false,
		"upload.bytes_per_second = 1000000000000":          true,
		"upload.at_once = 5000\nupload.connections = 5001": false,
	} {
		_, err := Load(write(t, text), nil)
		effort.ErrorIf(t, errors.Is(err, ErrInvalid) == fine, "%q: %v", text, err)
	}
}

func TestFaultsOfTheEnvironmentNameTheVariable(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"no number", "ROLLCALL_SMTP_PORT=x", `ROLLCALL_SMTP_PORT: smtp.port: "x" is not a whole number`},
		{"no such port", "ROLLCALL_SMTP_PORT=70000", "ROLLCALL_SMTP_PORT: smtp.port: 70000 is not a port"},
		{"neither true nor false", "ROLLCALL_THROTTLE_DEFAULT_PIPELINING=maybe",
			"ROLLCALL_THROTTLE_DEFAULT_PIPELINING: throttle.default.pipelining: "},
		{"no time", "ROLLCALL_RETRY_GREYLIST_WAITS=1m,x", "ROLLCALL_RETRY_GREYLIST_WAITS: retry.greylist_waits: "},
		{"no rate", "ROLLCALL_THROTTLE_DEFAULT_RCPT_RATE=x", "ROLLCALL_THROTTLE_DEFAULT_RCPT_RATE: " +
			"throttle.default.rcpt_rate: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load("", []string{c.line})
			effort.ErrorIf(t, !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), c.want),
				"%s: got %v, want %s...", c.line, err, c.want)
		})
	}
}

func TestListsInTheEnvironmentAreSeparatedByCommas(t *testing.T) {
	c := effort.Must(Load("", []string{
		"ROLLCALL_DNS_SERVERS=127.0.0.1:53, 127.0.0.2:53", "ROLLCALL_RETRY_GREYLIST_WAITS=1s,2s",
		"ROLLCALL_SMTP_ALLOW_NETWORKS=",
	}))(t)
	effort.ErrorIf(t, len(c.DNS.Servers) != 2 || c.DNS.Servers[1] != "127.0.0.2:53" || len(c.SMTP.AllowNetworks) != 0,
		"got servers %q, networks %q", c.DNS.Servers, c.SMTP.AllowNetworks)
	w := c.Retry.GreylistWaits
	effort.ErrorIf(t, len(w) != 2 || w[1].Duration != 2*time.Second, "got waits %v, want 1s and 2s", w)
}

func TestUnknownNamesInTheEnvironmentAreReported(t *testing.T) {
	got := UnknownEnviron([]string{
		"ROLLCALL_SMTP_PROT=1", "ROLLCALL_SMTP_PORT=25", "ROLLCALL_ADMIN_TOKEN=x", "ROLLCALL_KEY=x", "HOME=/",
	})
	effort.ErrorIf(t, len(got) != 1 || got[0] != "ROLLCALL_SMTP_PROT", "got %q, want ROLLCALL_SMTP_PROT alone", got)
}

func TestSettingsThatFollowFromOthers(t *testing.T) {
	for _, c := range []struct{ name, lines, upload, ledger string }{
		{"nothing set", "A=b", "http://127.0.0.1:8082", "sqlite:rollcall-data/ledger.db"},
		{"other port", "ROLLCALL_UPLOAD_LISTEN=127.0.0.1:9000", "http://127.0.0.1:9000", "sqlite:rollcall-data/ledger.db"},
		{"all interfaces", "ROLLCALL_UPLOAD_LISTEN=0.0.0.0:9000 ROLLCALL_HTTP_PLAIN=true", "http://127.0.0.1:9000",
			"sqlite:rollcall-data/ledger.db"},
		{"certificate", "ROLLCALL_UPLOAD_LISTEN=0.0.0.0:9000 ROLLCALL_HTTP_TLS_CERT=a ROLLCALL_HTTP_TLS_KEY=b",
			"https://127.0.0.1:9000", "sqlite:rollcall-data/ledger.db"},
		{"certificate of its own", "ROLLCALL_UPLOAD_TLS_CERT=a ROLLCALL_UPLOAD_TLS_KEY=b", "https://127.0.0.1:8082",
			"sqlite:rollcall-data/ledger.db"},
		{"any port", "ROLLCALL_UPLOAD_LISTEN=127.0.0.1:0", "", "sqlite:rollcall-data/ledger.db"},
		{"public URL", "ROLLCALL_UPLOAD_PUBLIC_URL=https://up.test", "https://up.test", "sqlite:rollcall-data/ledger.db"},
		{"data folder", "ROLLCALL_DATA_DIR=/var/rollcall", "http://127.0.0.1:8082", "sqlite:/var/rollcall/ledger.db"},
		{"ledger", "ROLLCALL_LEDGER_URL=sqlite:x.db", "http://127.0.0.1:8082", "sqlite:x.db"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := effort.Must(Load("", strings.Fields(c.lines)))(t)
			effort.Is(t, got.Upload.PublicURL, c.upload)
			effort.Is(t, got.Ledger.URL, c.ledger)
		})
	}
}

// TestWhatWouldBeSentInClearIsRefused, unless it is encrypted, or http.plain allows it.
func TestWhatWouldBeSentInClearIsRefused(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string // in each line of the error
	}{
		{"", nil},
		{"[http]\nlisten = \"192.0.2.1:80\"\n", []string{"http.listen: 192.0.2.1:80 is off loopback"}},
		{"[http]\nlisten = \"node.example.com:80\"\n", []string{"allow it with http.plain = true"}},
		{"[upload]\nlisten = \":80\"\n", []string{"upload.listen: :80 is off loopback"}},
		{"[admin]\nlisten = \"192.0.2.1:80\"\n", []string{"admin.listen: 192.0.2.1:80 is off loopback"}},
		{"[http]\nlisten = \":80\"\nplain = true\n", nil},
		{"[http]\nlisten = \":80\"\ntrusted_proxies = [\"192.0.2.0/24\"]\n", nil},
		{"[http]\nlisten = \":80\"\ntls_cert = \"a\"\ntls_key = \"b\"\n[upload]\nlisten = \":81\"\n", nil},
		{"[http]\nlisten = \":80\"\n[upload]\nlisten = \":81\"\ntls_cert = \"a\"\ntls_key = \"b\"\n",
			[]string{"http.listen: :80 is off loopback"}},
		{"[admin]\nlisten = \":80\"\ntls_cert = \"a\"\ntls_key = \"b\"\n", nil},
		{"http.listen = \":80\"\nhttp.tls_cert = \"a\"\nhttp.tls_key = \"b\"\nupload.listen = \":81\"\n" +
			"upload.tls_cert = \"c\"\nupload.tls_key = \"d\"\n", nil},
		{"[admin]\nlisten = \"unix:/" + strings.Repeat("a", 106) + "\"\n", nil}, // the longest there is
		{"[http]\nlisten = \"[::1]:80\"\n[admin]\nlisten = \"localhost:81\"\n", nil},
		{"http.plain = true\nadmin.listen = \":80\"\n", []string{"or at a unix socket such as"}},
		{"http.listen = \":80\"\nupload.listen = \":81\"\nadmin.listen = \":82\"\n", []string{"http.listen: ",
			"upload.listen: ", "admin.listen: "}},
	} {
		_, err := Load(write(t, c.text), nil)
		if c.want == nil {
			effort.ErrIs(t, err, nil, c.text)
			continue
		}
		effort.ErrorIf(t, !errors.Is(err, ErrInvalid) ||
			!slices.EqualFunc(strings.Split(err.Error(), "\n"), c.want, strings.Contains), "%q: got %v, want ErrInvalid with %q",
			c.text, err, c.want)
	}
}

// oidc is a file with a provider.
func oidc(issuer string) string {
	return "[dashboard]\noidc_issuer = \"" + issuer + "\"\noidc_client_id = \"rollcall\"\noidc_secret_file = \"/x\"\n"
}

// TestAllFaultsAtOnce: unknown keys and tables, values of the wrong kind, values out of range, and those of the
// environment are told in one go, each once.
func TestAllFaultsAtOnce(t *testing.T) {
	file := write(t, `colour = "red"
[http]
listen = "nonsense"
plain = "perhaps"
[htpp]
listen = "127.0.0.1:1"
burst = 9
[smtp]
port = 99999
[throttle.default]
connections = -1
`)
	_, err := Load(file, []string{"ROLLCALL_DNS_AT_ONCE=many"})
	text := fmt.Sprint(err)
	for _, want := range []string{`1:1: unknown key "colour"`, "3:1: http.listen: ", "4:1: http.plain: ",
		`5:2: unknown key "htpp"`,
		"9:1: smtp.port: ", "11:1: throttle.default.connections: ", "ROLLCALL_DNS_AT_ONCE: "} {
		effort.Is(t, strings.Count(text, want), 1, want, text)
	}
	effort.Is(t, strings.Count(text, "\n")+1, 7, "faults", text)
}

func TestTracingIsCheckedAndReadFromTheEnvironment(t *testing.T) {
	for _, c := range []struct{ endpoint, sample, fault string }{
		{"", "0.01", ""},
		{"otel:4318", "1", ""},
		{"https://otel.example.com/v1/traces", "0", ""},
		{"otel", "0.5", "tracing.endpoint"},
		{"https://user:hunter2@otel.example.com", "0.5", "tracing.endpoint"},
		{"ftp://otel.example.com", "0.5", "tracing.endpoint"},
		{"otel:4318", "1.5", "tracing.sample"},
		{"otel:4318", "NaN", "tracing.sample"},
		{"otel:4318", "half", "tracing.sample"},
	} {
		got, err := Load("", []string{"ROLLCALL_TRACING_ENDPOINT=" + c.endpoint, "ROLLCALL_TRACING_SAMPLE=" + c.sample})
		switch {
		case c.fault == "" && (err != nil || got.Tracing.Endpoint != c.endpoint):
			t.Errorf("%s and %s: got %+v and %v", c.endpoint, c.sample, got.Tracing, err)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s and %s: got %v, want a fault of %s", c.endpoint, c.sample, err, c.fault)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("a password is repeated: %v", err)
		}
	}
}

// FuzzThrottleText: whatever stands in a throttle file, every fault has its place, and what
// has none is taken by a table and looks the same when it is written and read again.
func FuzzThrottleText(f *testing.F) {
	f.Add([]byte(everyField))
	f.Add([]byte("[default]\nconections = 3\nrcpt_rate = \"\\u0066ast\"\n[[receivers]]\n[default"))
	f.Add([]byte("receivers = { \"a b\" = { tls = '''on''', retry_waits = [\"\", 7, [\"5m\"]] } }"))
	f.Add([]byte("[sources.\"\"]\nrcpts_per_day = 0x_10\nwarm_up_from = 2026-11-21\n\"\\t\".x = 1"))
	f.Add([]byte("[default]\nidle_time = \"\"\"\n5s\"\"\"\nsession_age = \"\"\n\"tls\" = 'off'"))
	f.Fuzz(func(t *testing.T, text []byte) {
		rules, findings := CheckThrottleText("throttle.toml", text, Throttle{})
		faults := 0
		for _, found := range findings {
			effort.ErrorIf(t, found.Line < 1 || found.Column < 1 || found.File != "throttle.toml" || found.Text == "",
				"%q: a finding without a place: %+v", text, found)
			if found.Severity == SeverityError {
				faults++
			}
		}
		if faults > 0 {
			effort.ErrorIf(t, rules != nil, "%q: rules of a file with faults", text)
			return
		}
		effort.Denied(throttle.NewTable(rules))(t, nil, text)
	})
}
