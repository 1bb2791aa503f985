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

// write writes text into a file called rollcall.toml and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rollcall.toml")
	effort.OK(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// TestFaultsAreToldWithTheirPlaceAndWhatToDo: testdata/faults.txt holds short cases: names, texts and how the
// messages about their faults begin. Long cases, and those that share a table, are here.
func TestFaultsAreToldWithTheirPlaceAndWhatToDo(t *testing.T) {
	text := effort.Must(os.ReadFile("testdata/faults.txt"))(t)
	cases := strings.Split(strings.TrimPrefix(string(text), "# "), "\n\n# ")
	for name, texts := range map[string][2]string{
		"issuer in clear":         {oidc("http://login.test"), `2:1: dashboard.oidc_issuer: "http://login.test" is not an issuer`},
		"issuer with a query":     {oidc("https://login.test?a=b"), `2:1: dashboard.oidc_issuer: "https://login.test?a=b" is not an issuer`},
		"issuer without a scheme": {oidc("login.test"), `2:1: dashboard.oidc_issuer: "login.test" is not an issuer`},
		"long socket":             {"[admin]\nlisten = \"unix:/" + strings.Repeat("a", 107) + "\"\n", "2:1: admin.listen: "},
		"too many addresses": {"[identity]\npublic_addresses = [" + strings.Repeat(`"192.0.2.1",`, 65) + "]\n",
			"2:1: identity.public_addresses: 65 addresses are too many: write at most 64"},
		"too many lists": {"[identity]\nblock_lists = [" + strings.Repeat(`"bl.test",`, 9) + "]\n",
			"2:1: identity.block_lists: 9 names are too many: write at most 8"},
		"long cluster name": {"[cluster]\nname = \"" + strings.Repeat("x", 256) + "\"\n", "2:1: cluster.name: has 256"},
	} {
		cases = append(cases, fmt.Sprintf("%s\n%s=> %s", name, texts[0], texts[1]))
	}
	for _, c := range cases {
		text, want, _ := strings.Cut(strings.TrimRight(c, "\n"), "=> ")
		name, text, _ := strings.Cut(text, "\n")
		t.Run(name, func(t *testing.T) {
			file := write(t, text)
			_, err := Load(file, nil)
			effort.FatalIf(t, !errors.Is(err, ErrInvalid), "%q: got error %v, want ErrInvalid", text, err)
			if want[0] >= '0' && want[0] <= '9' {
				want = file + ":" + want
			}
			effort.ErrorIf(t, !strings.HasPrefix(err.Error(), want), "%q:\n got %s\nwant %s...", text, err, want)
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

// TestSharesThatLeaveNothingForOthersAreRefused also checks that numbers that no machine can serve are refused.
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

// TestWhatWouldBeSentInClearIsRefused: a listener that others can reach needs TLS or http.plain.
func TestWhatWouldBeSentInClearIsRefused(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string // part of each line of the error
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

// oidc returns a configuration file with a provider.
func oidc(issuer string) string {
	return "[dashboard]\noidc_issuer = \"" + issuer + "\"\noidc_client_id = \"rollcall\"\noidc_secret_file = \"/x\"\n"
}

// TestAllFaultsAtOnce: one error lists, each once, unknown keys and tables, values of the wrong kind, values out of
// range, and faults of the environment.
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

// FuzzThrottleText: for any text of a throttle file, every fault has a place. A text without faults becomes a table,
// and is the same after it is written and read again.
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
