package config

import (
	"net/url"
	"strings"
)

func (t Tracing) check(k *checker) {
	if !(t.Sample >= 0 && t.Sample <= 1) {
		k.add("tracing.sample", "%v is out of range: write the part of the traces to send, from 0 to 1", t.Sample)
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
		u.RawQuery != "" || u.Fragment != "" { // a password in it is not repeated here
		k.add("tracing.endpoint", "is not the URL of a collector: write host:port, or one such as "+
			"https://collector.example.com:4318/v1/traces, without password, query and fragment; what the "+
			"collector wants to see goes into OTEL_EXPORTER_OTLP_HEADERS")
	}
}
