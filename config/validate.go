package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"rollcall/smtp"
)

// dnsServersMax bounds the resolvers: more than a few only lengthens the wait when the network is down. Guess.
const (
	dnsServersMax  = 8
	filesAtOnceMax = 10_000
)

// receiversMax bounds smtp.receivers_at_once: some GB of memory.
const receiversMax = 100_000

// dnsAtOnceMax bounds dns.at_once: each look-up is a question on the wire and takes some KB.
const dnsAtOnceMax = 100_000

// proxiesMax bounds the proxies, because each request is compared with all of them. Guess.
const proxiesMax = 64

// waitsMax bounds the lists of waits. Guess: one an hour for a day.
const waitsMax = 24

// Validate returns nil, or an ErrInvalid with one line for each fault of c.
func (c Config) Validate() error { return invalid(places(nil).locate(c.faults())) }

type checker struct{ found []fault }

func (k *checker) add(key, format string, args ...any) {
	k.found = append(k.found, fault{key: key, text: fmt.Sprintf(format, args...)})
}

func (c Config) faults() []fault {
	k := &checker{}
	if c.DataDir == "" {
		k.add("data_dir", "is empty: write the folder for the files that this node keeps")
	}
	c.checkListeners(k)
	c.checkLimits(k)
	c.checkMail(k)
	c.Identity.check(k)
	c.checkRetry(k)
	c.checkDashboard(k)
	c.Throttle.check(k, "throttle.")
	c.checkCluster(k)
	c.Tracing.check(k)
	k.ledgerURL("ledger.url", c.Ledger.URL)
	k.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	k.oneOf("log.format", c.Log.Format, "json", "text")
	return k.found
}

func (c Config) checkListeners(k *checker) {
	k.listen("http.listen", c.HTTP.Listen)
	k.listen("upload.listen", c.Upload.Listen)
	k.pair("http", c.HTTP.TLSCert, c.HTTP.TLSKey)
	k.pair("upload", c.Upload.TLSCert, c.Upload.TLSKey)
	c.Admin.check(k)
	c.checkClear(k)
	k.distinct("upload.listen", c.Upload.Listen, "http.listen", c.HTTP.Listen)
	k.distinct("admin.listen", c.Admin.Listen, "http.listen", c.HTTP.Listen)
	k.distinct("admin.listen", c.Admin.Listen, "upload.listen", c.Upload.Listen)
	k.publicURL("http.public_url", c.HTTP.PublicURL)
	k.publicURL("upload.public_url", c.Upload.PublicURL)
	for _, o := range c.HTTP.AllowedOrigins {
		k.origin("http.allowed_origins", o)
	}
	k.limitLength("http.trusted_proxies", c.HTTP.TrustedProxies, proxiesMax, "entries")
	k.requireEach("http.trusted_proxies", c.HTTP.TrustedProxies, addressOrNetwork,
		"%q is neither an address nor a network: write one such as 10.0.0.7 or 10.0.0.0/24")
}

// requireEach refuses the items of a list that don't have the right form.
func (k *checker) requireEach(key string, list []string, valid func(string) bool, problem string) {
	for _, text := range list {
		if !valid(text) {
			k.add(key, problem, text)
		}
	}
}

// limitLength refuses a list that is too long.
func (k *checker) limitLength(key string, list []string, most int, what string) {
	if len(list) > most {
		k.add(key, "%d %s are too many: write at most %d", len(list), what, most)
	}
}

// address, network and addressOrNetwork report whether a text is one.
func address(text string) bool { _, err := netip.ParseAddr(text); return err == nil }
func network(text string) bool { _, err := netip.ParsePrefix(text); return err == nil }

func addressOrNetwork(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && a.Zone() == "" || network(text)
}

func (c Config) checkLimits(k *checker) {
	k.requirePositive("http.reads_per_second", int64(c.HTTP.ReadsPerSecond))
	k.requirePositive("http.burst", int64(c.HTTP.Burst))
	k.requirePositive("http.creates_per_second", int64(c.HTTP.CreatesPerSecond))
	k.requirePositive("http.creates_burst", int64(c.HTTP.CreatesBurst))
	k.requirePositive("http.downloads_at_once", int64(c.HTTP.DownloadsAtOnce))
	k.requirePositive("http.bad_keys_per_minute", int64(c.HTTP.BadKeysPerMinute))
	k.requirePositive("limits.max_file_bytes", c.Limits.MaxFileBytes)
	k.requirePositive("limits.max_rows", c.Limits.MaxRows)
	k.requirePositive("limits.max_open_verifications", int64(c.Limits.MaxOpenVerifications))
	k.requirePositive("limits.file_bytes_at_once", c.Limits.FileBytesAtOnce)
	k.requirePositive("limits.stored_bytes", c.Limits.StoredBytes)
	k.requirePositive("limits.unpaid_per_day", int64(c.Limits.UnpaidPerDay))
	k.count("limits.files_at_once", c.Limits.FilesAtOnce, 1, filesAtOnceMax)
	if c.Ledger.DiskReserve < 0 {
		k.add("ledger.disk_reserve", "%d is too small: write a number of bytes from 0", c.Ledger.DiskReserve)
	}
	k.between("upload.expires_after", c.Upload.ExpiresAfter, time.Second, 168*time.Hour)
	c.checkShares(k)
	k.atLeast("retention.uploads", c.Retention.Uploads, time.Second)
	k.atLeast("retention.results", c.Retention.Results, time.Second)
	k.atLeast("retention.funding", c.Retention.Funding, time.Second)
	if c.Audit.Every.Duration != 0 {
		k.atLeast("audit.every", c.Audit.Every, time.Second)
	}
}

const (
	connectionsMax = 65536  // for a listener: about as many as one address has ports
	uploadsMax     = 4096   // 1 GiB of chunks
	paceMin        = 262144 // one chunk a second: below that, clients that wait for each other would wait for minutes
)

// checkShares checks the limits that tenants share.
func (c Config) checkShares(k *checker) {
	k.count("http.connections", c.HTTP.Connections, 2, connectionsMax)
	k.count("upload.at_once", c.Upload.AtOnce, 2, uploadsMax)
	k.count("upload.connections", c.Upload.Connections, max(2, min(c.Upload.AtOnce, uploadsMax))+1, connectionsMax)
	if b := c.Upload.BytesPerSecond; b != 0 && b < paceMin {
		k.add("upload.bytes_per_second", "%d is out of range: write 0 for no bound, or at least %d", b, paceMin)
	}
}

func (k *checker) requirePositive(key string, n int64) {
	if n < 1 {
		k.add(key, "%d is too small: write a number from 1", n)
	}
}

func (k *checker) count(key string, n, least, most int) {
	if n < least || n > most {
		k.add(key, "%d is out of range: write from %d to %d", n, least, most)
	}
}

func (c Config) checkMail(k *checker) {
	k.limitLength("dns.servers", c.DNS.Servers, dnsServersMax, "servers")
	for _, s := range c.DNS.Servers {
		k.hostPort("dns.servers", s, "53")
	}
	k.between("dns.timeout", c.DNS.Timeout, 10*time.Millisecond, 20*time.Second)
	k.count("smtp.receivers_at_once", c.SMTP.ReceiversAtOnce, 16, receiversMax)
	k.count("dns.at_once", c.DNS.AtOnce, 1, dnsAtOnceMax)
	if c.SMTP.Port < 1 || c.SMTP.Port > 65535 {
		k.add("smtp.port", "%d is not a port: write a number from 1 to 65535, 25 for the real world", c.SMTP.Port)
	}
	if h := c.SMTP.HelloName; h != "" && !hostName(h) {
		k.add("smtp.hello_name", "%q is not a host name: write one such as probe.example.com", h)
	}
	if r := c.SMTP.ReturnPath; r != "" {
		if _, err := smtp.ParseAddress(r); err != nil {
			k.add("smtp.return_path", "%q is not an address: write one such as postmaster@example.com", r)
		}
	}
	k.requireEach("smtp.source_addresses", c.SMTP.SourceAddresses, address,
		"%q is not an IP address: write one of this machine's")
	k.requireEach("smtp.allow_networks", c.SMTP.AllowNetworks, network,
		"%q is not a network: write one such as 127.0.0.0/8")
}

func (k *checker) waits(key string, waits []Duration) {
	if len(waits) < 1 || len(waits) > waitsMax {
		k.add(key, "%d waits: write from 1 to %d", len(waits), waitsMax)
	}
	for _, w := range waits {
		k.atLeast(key, w, time.Millisecond)
	}
}

func (c Config) checkRetry(k *checker) {
	k.waits("retry.greylist_waits", c.Retry.GreylistWaits)
	k.waits("retry.control_waits", c.Retry.ControlWaits)
	k.atLeast("retry.give_up_after", c.Retry.GiveUpAfter, time.Millisecond)
}

// contactMax bounds the contact. sessionMost bounds how long anybody stays signed in.
const (
	contactMax  = 200
	sessionMost = 2160 * time.Hour
)

// checkDashboard also refuses public pages with an upload URL that only this machine or network reaches, because
// browsers elsewhere could not upload.
func (c Config) checkDashboard(k *checker) {
	d := c.Dashboard
	if len(d.Contact) > contactMax || strings.ContainsFunc(d.Contact, unicode.IsControl) {
		k.add("dashboard.contact", "write at most %d bytes on one line", contactMax)
	}
	k.between("dashboard.session_life", d.SessionLife, time.Second, sessionMost)
	k.between("dashboard.session_idle", d.SessionIdle, time.Second, d.SessionLife.Duration)
	d.checkProvider(k)
	open := strings.HasPrefix(c.HTTP.PublicURL, "https://") && !nearby(c.HTTP.PublicURL)
	if d.Enabled && open && nearby(c.Upload.PublicURL) {
		k.add("upload.public_url", "browsers that open the pages at %s may not reach %s: set it to an address that "+
			"everybody reaches, or serve no pages with dashboard.enabled = false", c.HTTP.PublicURL, c.Upload.PublicURL)
	}
}

// nameMax bounds the provider's name on buttons.
const nameMax = 50

// checkProvider requires all settings of a provider, or none.
func (d Dashboard) checkProvider(k *checker) {
	if d.OIDCName == "" || len(d.OIDCName) > nameMax || strings.ContainsFunc(d.OIDCName, unicode.IsControl) {
		k.add("dashboard.oidc_name", "write 1 to %d bytes on one line", nameMax)
	}
	all := []struct{ key, value string }{{"dashboard.oidc_issuer", d.OIDCIssuer},
		{"dashboard.oidc_client_id", d.OIDCClientID}, {"dashboard.oidc_secret_file", d.OIDCSecretFile}}
	some := all[0].value != "" || all[1].value != "" || all[2].value != ""
	for _, one := range all {
		if some && one.value == "" {
			k.add(one.key, "is empty: oidc_issuer, oidc_client_id and oidc_secret_file belong together")
		}
	}
	if d.OIDCIssuer == "" {
		return
	}
	u, err := url.Parse(d.OIDCIssuer)
	clear := err == nil && u.Scheme == "http" && onThisMachine(u.Hostname())
	if err != nil || u.Scheme != "https" && !clear || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		strings.ContainsAny(d.OIDCIssuer, "?# ") {
		k.add("dashboard.oidc_issuer", "%q is not an issuer: write the provider's own issuer URL, such as "+
			"https://login.example.com, without a query", d.OIDCIssuer)
	}
}

// onThisMachine reports whether a host, a name or an address, is this machine.
func onThisMachine(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// nearby reports whether the host of a URL is an address of this machine or of a private network.
func nearby(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(u.Hostname())
	return onThisMachine(u.Hostname()) || err == nil && (a.IsPrivate() || a.IsLinkLocalUnicast())
}

// checkClear refuses unencrypted listeners that others can reach.
func (c Config) checkClear(k *checker) {
	upload, _ := c.UploadTLS()
	for _, l := range []struct{ table, listen, cert string }{
		{"http", c.HTTP.Listen, c.HTTP.TLSCert}, {"upload", c.Upload.Listen, upload},
	} {
		if l.cert == "" && offLoopback(l.listen) && len(c.HTTP.TrustedProxies) == 0 && !c.HTTP.Plain {
			k.add(l.table+".listen", "%s is off loopback, where API keys and files would be sent without encryption: "+
				"set http.tls_cert and http.tls_key, or name the proxies that encrypt in http.trusted_proxies, or "+
				"allow it with http.plain = true", l.listen)
		}
	}
	if a := c.Admin; a.TLSCert == "" && !strings.HasPrefix(a.Listen, UnixPrefix) && offLoopback(a.Listen) {
		k.add("admin.listen", "%s is off loopback, where the operator's token would be sent without encryption: "+
			"set admin.tls_cert and admin.tls_key, or listen on loopback or at a unix socket such as "+
			"unix:/run/rollcall/admin.sock", a.Listen)
	}
}

// UploadTLS returns the files of the storage listener: its own, or those of the API.
func (c Config) UploadTLS() (cert, key string) {
	if c.Upload.TLSCert != "" {
		return c.Upload.TLSCert, c.Upload.TLSKey
	}
	return c.HTTP.TLSCert, c.HTTP.TLSKey
}

// unixPathMax is the kernel's bound (sun_path of unix(7), without the final NUL).
const unixPathMax = 107

// hostsMax bounds the names of the admin listener. Guess: a node has a few.
const hostsMax = 64

func (a Admin) check(k *checker) {
	k.pair("admin", a.TLSCert, a.TLSKey)
	k.limitLength("admin.hosts", a.Hosts, hostsMax, "names")
	k.requireEach("admin.hosts", a.Hosts, func(h string) bool { return address(h) || hostName(h) },
		"%q is not a host: write a name or an address without a port")
	path, unix := strings.CutPrefix(a.Listen, UnixPrefix)
	switch {
	case unix && (!filepath.IsAbs(path) || len(path) > unixPathMax):
		k.add("admin.listen", "%q is not a usable socket: write an absolute path of at most %d bytes, such as "+
			"unix:/run/rollcall/admin.sock", a.Listen, unixPathMax)
	case unix && a.TLSCert != "":
		k.add("admin.tls_cert", "is not used at a unix socket, which no other machine reaches: leave it out")
	case unix:
	default:
		k.listen("admin.listen", a.Listen)
	}
}

// UnixPrefix is how the address of a unix socket begins.
const UnixPrefix = "unix:"

// pair requires both files of a listener or none.
func (k *checker) pair(table, cert, key string) {
	if (cert == "") != (key == "") {
		set := ".tls_cert"
		if cert == "" {
			set = ".tls_key"
		}
		k.add(table+set, "%[1]s.tls_cert and %[1]s.tls_key belong together: set both or none", table)
	}
}

// clusterNameMax is the gossip's bound (memberlist.LabelMaxSize).
const clusterNameMax = 255

// joinMax bounds the addresses to join: a few are enough, and a name may mean many. Guess.
const joinMax = 64

func (c Config) checkCluster(k *checker) {
	c.Cluster.checkAddresses(k)
	c.Cluster.checkSecrets(k)
	if len(c.Cluster.Join) > 0 && strings.HasPrefix(c.Ledger.URL, "sqlite:") {
		k.add("cluster.join", "several nodes cannot work on ledger.url sqlite:...: the embedded ledger is one "+
			"node's; use CockroachDB or PostgreSQL, or leave join empty")
	}
}

func (c Cluster) checkAddresses(k *checker) {
	if c.Name == "" || len(c.Name) > clusterNameMax {
		k.add("cluster.name", "has %d bytes: write a name of 1 to %d that all nodes of the cluster share",
			len(c.Name), clusterNameMax)
	}
	k.listen("cluster.gossip_listen", c.GossipListen)
	k.listen("cluster.actor_listen", c.ActorListen)
	k.distinct("cluster.actor_listen", c.ActorListen, "cluster.gossip_listen", c.GossipListen)
	if a := c.Advertise; a != "" {
		ip, err := netip.ParseAddr(a)
		if err != nil && !hostName(a) || err == nil && ip.IsUnspecified() {
			k.add("cluster.advertise", "%q is not a host: write the name or the IP address, without a port, that "+
				"other nodes reach this one at", a)
		}
	} else if everywhere(c.GossipListen) {
		k.add("cluster.advertise", "is required when cluster.gossip_listen is all interfaces: write the host that "+
			"other nodes reach this one at")
	}
	k.limitLength("cluster.join", c.Join, joinMax, "addresses")
	for _, j := range c.Join {
		k.hostPort("cluster.join", j, "7946")
	}
	if len(c.AllowNetworks) == 0 {
		k.add("cluster.allow_networks", "is empty, so no member could connect: write the networks of the nodes, "+
			"such as 10.0.0.0/8")
	}
	k.requireEach("cluster.allow_networks", c.AllowNetworks, network,
		"%q is not a network: write one such as 10.0.0.0/8")
}

// checkSecrets requires keys and certificates if others can reach the node.
func (c Cluster) checkSecrets(k *checker) {
	set := 0
	for _, f := range []string{c.TLSCAFile, c.TLSCertFile, c.TLSKeyFile} {
		if f != "" {
			set++
		}
	}
	if set != 0 && set != 3 {
		k.add("cluster.tls_ca_file", "tls_ca_file, tls_cert_file and tls_key_file belong together: set all "+
			"three or none")
	}
	if loopback(c.GossipListen) && loopback(c.ActorListen) &&
		(c.Advertise == "" || loopback(net.JoinHostPort(c.Advertise, "0"))) {
		return
	}
	if c.GossipKeyFile == "" {
		k.add("cluster.gossip_key_file", "is required off loopback, where anybody could join: make one with "+
			"`rollcall cluster keys new FILE` and give it to all nodes")
	}
	if set == 0 {
		k.add("cluster.tls_ca_file", "mutual TLS is required off loopback, where anybody could send messages to this "+
			"node: make certificates with `rollcall cluster cert` and set tls_ca_file, tls_cert_file and tls_key_file")
	}
}

func (k *checker) listen(key, value string) {
	host, port, err := net.SplitHostPort(value)
	n, portErr := strconv.Atoi(port)
	if err != nil || portErr != nil || n < 0 || n > 65535 {
		k.add(key, "%q is not host:port: write one such as 127.0.0.1:8080", value)
		return
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && !hostName(host) {
		k.add(key, "%q has no usable host: write an IP address or a host name before the port", value)
	}
}

func (k *checker) hostPort(key, value, port string) {
	host, number, err := net.SplitHostPort(value)
	n, portErr := strconv.Atoi(number)
	if err != nil || host == "" || portErr != nil || n < 1 || n > 65535 {
		k.add(key, "%q is not host:port: write one such as 192.0.2.53:%s", value, port)
	}
}

func (k *checker) distinct(key, value, otherKey, other string) {
	if value == other && !strings.HasSuffix(value, ":0") {
		k.add(key, "%s is %s too: write another port", value, otherKey)
	}
}

func (k *checker) publicURL(key, value string) {
	if value == "" {
		return // port 0: derived later, when the port is known
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" || strings.HasSuffix(value, "/") {
		k.add(key, "%q is not a base URL: write one such as https://api.example.com, without a final slash", value)
	}
}

func (k *checker) origin(key, value string) {
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Scheme+"://"+u.Host != value ||
		value != strings.ToLower(value) || strings.Contains(value, "*") {
		k.add(key, "%q is not an origin: write one such as https://app.example.com, lower case, without a path",
			value)
	}
}

func (k *checker) ledgerURL(key, value string) {
	if path, ok := strings.CutPrefix(value, "sqlite:"); ok && path != "" {
		return
	}
	if strings.HasPrefix(value, "postgresql://") || strings.HasPrefix(value, "postgres://") {
		return
	}
	k.add(key, "is not a ledger: write sqlite:PATH or postgresql://user@host:26257/rollcall?sslmode=verify-full")
}

func (k *checker) oneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		k.add(key, "%q is not known: write one of %s", value, strings.Join(allowed, ", "))
	}
}

func (k *checker) atLeast(key string, d Duration, least time.Duration) {
	if d.Duration < least {
		k.add(key, "%s is too short: write at least %s", d, Duration{least})
	}
}

func (k *checker) between(key string, d Duration, least, most time.Duration) {
	if d.Duration < least || d.Duration > most {
		k.add(key, "%s is out of range: write from %s to %s", d, Duration{least}, Duration{most})
	}
}

// hostName reports whether s is a host name (RFC 1123 §2.1), underscores allowed.
func hostName(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.ContainsFunc(label, notBare) {
			return false
		}
	}
	return true
}

// loopback reports whether host:port is on this machine only.
func loopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	return err == nil && onThisMachine(host)
}

// offLoopback reports whether host:port can be reached from other machines.
func offLoopback(hostPort string) bool {
	_, _, err := net.SplitHostPort(hostPort)
	return err == nil && !loopback(hostPort)
}

// everywhere reports whether host:port is all interfaces of this machine.
func everywhere(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return host == "" || err == nil && a.IsUnspecified()
}

// LocalURL is the URL of a listener for clients on this machine; "" when the port is not known yet.
func LocalURL(listen, cert string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "0" {
		return ""
	}
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http://"
	if cert != "" {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port)
}
