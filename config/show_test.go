package config

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"rollcall/config/effort"
)

func TestEveryKeyComesBackFromItsOwnText(t *testing.T) {
	c := Default()
	five, rate := 5, Rate{Events: 7, Per: c.Throttle.Default.RcptRate.Per}
	c.Throttle.Receivers = map[string]Allowance{"example.net": {Connections: &five, RcptRate: &rate}}
	leaves("", reflect.ValueOf(&c).Elem(), func(key string, v reflect.Value) {
		change(v)
	})
	c.HTTP.Listen, c.Upload.Listen, c.Admin.Listen = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
	c.Cluster.GossipListen, c.Cluster.ActorListen = "127.0.0.1:4", "127.0.0.1:5"
	c.HTTP.PublicURL, c.Upload.PublicURL = "https://a.test", "https://b.test"
	c.Upload.Connections, c.Upload.BytesPerSecond = 78, 1<<20
	c.Admin.Hosts = []string{"node.test"}
	c.HTTP.TrustedProxies = []string{"192.0.2.0/24", "2001:db8::1"}
	c.HTTP.AllowedOrigins, c.DNS.Servers = []string{"https://c.test"}, []string{"127.0.0.1:6"}
	c.Cluster.Join, c.Ledger.URL = []string{"127.0.0.1:7"}, "postgresql://u@h/d"
	c.Cluster.Advertise, c.Cluster.AllowNetworks = "127.0.0.2", []string{"127.0.0.0/8"}
	c.SMTP.HelloName, c.SMTP.ReturnPath = "d.test", "postmaster@d.test"
	c.SMTP.SourceAddresses, c.SMTP.AllowNetworks = []string{"127.0.0.1"}, []string{"127.0.0.0/8"}
	c.Identity.PublicAddresses = []string{"192.0.2.1"}
	off, v6, drain, day := "off", "ipv6", "drain", "2026-11-21"
	c.Throttle.Default.TLS, c.Throttle.Default.AddressFamily, c.Throttle.Default.Pause = &off, &v6, &drain
	c.Throttle.Sources = map[string]Source{"default": {Pause: &drain}, "192.0.2.1": {RcptsPerDay: &five, WarmUpFrom: &day}}
	c.Tracing.Endpoint = "127.0.0.1:8"
	c.Dashboard.OIDCIssuer = "https://login.test"
	c.Log = Log{Level: "debug", Format: "text"}
	text := show(t, c)
	got, err := Load(write(t, text), nil)
	effort.OK(t, err, text)
	got.Throttle.places = nil
	effort.Same(t, got, c, show(t, got), text)
}

func TestEveryKeyCanBeSetByTheEnvironment(t *testing.T) {
	c := Default()
	leaves("", reflect.ValueOf(&c).Elem(), func(key string, v reflect.Value) {
		if strings.Contains(key, "*") {
			return
		}
		got := Default()
		effort.Is(t, len(applyEnviron(&got, []string{EnvironName(key) + "=" + sample(v)}, places{})), 0, key)
		if reflect.DeepEqual(got, Default()) {
			t.Errorf("%s=%s changes nothing", EnvironName(key), sample(v))
		}
	})
}

func TestShowNeverTellsThePassword(t *testing.T) {
	c := Default()
	var asJSON []byte
	for _, url := range []string{
		"postgresql://rollcall:hunter2@db.test:26257/rollcall?sslmode=verify-full",
		"postgres://db.test:26257/rollcall?user=rollcall&password=hunter2&sslpassword=hunter2",
		"postgresql://rollcall:hunter2@db.test:26257,db2.test:26257,[::1]:26257/rollcall?password=hunter2",
	} {
		c.Ledger.URL = url
		asJSON = effort.Must(c.ShowJSON())(t)
		_, hosts, _ := strings.Cut(url, "db.test")
		hosts, _, _ = strings.Cut(hosts, "/")
		text := show(t, c) + string(asJSON)
		effort.Lacks(t, text, "hunter2")
		effort.Has(t, text, "db.test"+hosts+"/")
	}
	var tree map[string]map[string]any
	err := json.Unmarshal(asJSON, &tree)
	effort.ErrorIf(t, err == nil || len(asJSON) == 0, "got %v, want data_dir to be a text beside tables", err)
}

func show(t *testing.T, c Config) string {
	t.Helper()
	text := effort.Must(c.ShowTOML())(t)
	return string(text)
}

// change gives a setting another usable value.
func change(v reflect.Value) {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return
	}
	if err := setText(v, sample(v)); err != nil {
		panic(err)
	}
}

// sample is a usable text for a setting, another than it has.
func sample(v reflect.Value) string {
	t := v.Type()
	switch formOf(t).want {
	case formOf(reflect.TypeFor[Duration]()).want:
		return "7s"
	case formOf(reflect.TypeFor[Rate]()).want:
		return "3/min"
	case formOf(reflect.TypeFor[[]Duration]()).want:
		return "1m,2m"
	case formOf(reflect.TypeFor[bool]()).want:
		if t.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		return strconv.FormatBool(!v.Bool())
	case formOf(reflect.TypeFor[int]()).want:
		return "77"
	case formOf(reflect.TypeFor[float64]()).want:
		return "0.5"
	}
	return "some-text"
}
