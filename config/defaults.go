package config

import (
	"net/url"
	"reflect"
	"strings"
	"time"

	"rollcall/smtp/throttle"
)

// Default returns the settings of a node without file and environment. The fields of Config give the reasons for the
// numbers.
func Default() Config {
	c := defaults()
	c.complete()
	return c
}

// defaults is Default, except for the settings that are derived from others.
func defaults() Config {
	return Config{
		DataDir: "rollcall-data",
		HTTP: HTTP{
			Listen:           "127.0.0.1:8080",
			ReadsPerSecond:   20,
			Burst:            40,
			CreatesPerSecond: 5,
			CreatesBurst:     20,
			DownloadsAtOnce:  4,
			BadKeysPerMinute: 20,
			Connections:      4096,
		},
		Upload: Upload{Listen: "127.0.0.1:8082", ExpiresAfter: Duration{24 * time.Hour}, AtOnce: 64, Connections: 1024},
		Admin:  Admin{Listen: "127.0.0.1:8081"},
		Dashboard: Dashboard{Enabled: true, SessionIdle: Duration{12 * time.Hour},
			SessionLife: Duration{168 * time.Hour}, OIDCName: "single sign-on"},
		Limits: Limits{MaxFileBytes: 100 << 20, MaxRows: 1_000_000, MaxOpenVerifications: 100,
			FilesAtOnce: 1000, FileBytesAtOnce: 512 << 20, StoredBytes: 10 << 30, UnpaidPerDay: 1000},
		Ledger:   Ledger{DiskReserve: 1 << 30},
		DNS:      DNS{Timeout: Duration{5 * time.Second}, AtOnce: 1000},
		SMTP:     SMTP{Port: 25, ReceiversAtOnce: 2048},
		Identity: Identity{Enforce: true},
		Retry: Retry{
			GreylistWaits: []Duration{
				Duration{5 * time.Minute}, Duration{10 * time.Minute}, Duration{20 * time.Minute},
				Duration{40 * time.Minute}, Duration{time.Hour}, Duration{2 * time.Hour},
			},
			GiveUpAfter:  Duration{6 * time.Hour},
			ControlWaits: []Duration{Duration{2 * time.Second}, Duration{15 * time.Second}},
		},
		Throttle: Throttle{File: "throttle.toml", Default: fullAllowance(throttle.DefaultLimits())},
		Verdict:  Verdict{File: "verdict.toml"},
		Cluster: Cluster{
			Name:          "rollcall",
			GossipListen:  "127.0.0.1:7946",
			ActorListen:   "127.0.0.1:7947",
			AllowNetworks: []string{"127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"},
		},
		Retention: Retention{
			Uploads: Duration{24 * time.Hour},
			Results: Duration{720 * time.Hour},
			Funding: Duration{720 * time.Hour},
		},
		Audit:   Audit{Every: Duration{time.Hour}},
		Log:     Log{Level: "info", Format: "json"},
		Tracing: Tracing{Sample: 0.01},
	}
}

// complete sets empty settings whose values are derived from others.
func (c *Config) complete() {
	if c.HTTP.PublicURL == "" {
		c.HTTP.PublicURL = LocalURL(c.HTTP.Listen, c.HTTP.TLSCert)
	}
	if c.Upload.PublicURL == "" {
		cert, _ := c.UploadTLS()
		c.Upload.PublicURL = LocalURL(c.Upload.Listen, cert)
	}
	if c.Ledger.URL == "" {
		c.Ledger.URL = "sqlite:" + c.DataDir + "/ledger.db"
	}
}

// fullAllowance returns limits as a table with every field set.
func fullAllowance(a throttle.Limits) Allowance {
	var full Allowance
	leaves("", reflect.ValueOf(&full).Elem(), func(key string, v reflect.Value) {
		f, ok := throttle.ParseField(key)
		if !ok {
			return // a test says so
		}
		text := a.Text(f)
		if f == throttle.FieldWaits && len(a.Waits.List()) == 0 {
			text = ""
		}
		_ = setText(v, text)
	})
	return full
}

const (
	// publicAddressesMax bounds the addresses that are checked. namesMax bounds the hosts and lists queried each
	// time. Guesses: more would only add noise.
	publicAddressesMax = 64
	namesMax           = 8
)

func (i Identity) check(k *checker) {
	k.limitLength("identity.public_addresses", i.PublicAddresses, publicAddressesMax, "addresses")
	k.requireEach("identity.public_addresses", i.PublicAddresses, address,
		"%q is not an IP address: write the ones that receivers see")
	k.requireNames("identity.reach", i.Reach)
	k.requireNames("identity.block_lists", i.BlockLists)
}

func (k *checker) requireNames(key string, list []string) {
	k.limitLength(key, list, namesMax, "names")
	k.requireEach(key, list, hostName, "%q is not a host name: write one such as mail.example.com")
}

func (t Tracing) check(k *checker) {
	if !(t.Sample >= 0 && t.Sample <= 1) {
		k.add("tracing.sample", "%v is out of range: write the fraction of the traces to send, from 0 to 1", t.Sample)
	}
	if t.Endpoint == "" {
		return
	}
	if !strings.Contains(t.Endpoint, "://") {
		k.hostPort("tracing.endpoint", t.Endpoint, "4318")
		return
	}
	u, err := url.Parse(t.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" { // the fault doesn't repeat the URL, which may hold a password
		k.add("tracing.endpoint", "is not the URL of a collector: write host:port, or one such as "+
			"https://collector.example.com:4318/v1/traces, without password, query and fragment; headers "+
			"for the collector go into OTEL_EXPORTER_OTLP_HEADERS")
	}
}
