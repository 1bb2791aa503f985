package config

// Config holds all settings of a node. Default is complete; a zero Config is not.
type Config struct {
	// DataDir is the folder for the embedded ledger, the admin token and the node's identity. It is made at first start
	// with mode 0700. Relative to the working folder. Default rollcall-data.
	DataDir string `toml:"data_dir"`

	HTTP      HTTP      `toml:"http"`
	Upload    Upload    `toml:"upload"`
	Dashboard Dashboard `toml:"dashboard"`
	Admin     Admin     `toml:"admin"`
	Ledger    Ledger    `toml:"ledger"`
	Limits    Limits    `toml:"limits"`
	DNS       DNS       `toml:"dns"`
	SMTP      SMTP      `toml:"smtp"`
	Identity  Identity  `toml:"identity"`
	Retry     Retry     `toml:"retry"`
	Throttle  Throttle  `toml:"throttle"`
	Verdict   Verdict   `toml:"verdict"`
	Cluster   Cluster   `toml:"cluster"`
	Retention Retention `toml:"retention"`
	Audit     Audit     `toml:"audit"`
	Log       Log       `toml:"log"`
	Tracing   Tracing   `toml:"tracing"`
}

// HTTP is the listener of the customer API.
type HTTP struct {
	// Listen is the host:port of the API. Port 0 takes any free one. Default 127.0.0.1:8080.
	Listen string `toml:"listen"`

	// PublicURL is how customers reach the API, without a final slash. Empty: http:// (https:// with TLSCert) and
	// Listen, with 127.0.0.1 in place of "all interfaces". Default http://127.0.0.1:8080.
	PublicURL string `toml:"public_url"`

	// TLSCert is the PEM file with the certificate for this listener and [upload], then its issuers without the root.
	// Changed files are read within a second; a pair that can't be used is logged, and the old one stays. Off loopback a
	// node needs TLS, TrustedProxies or Plain. Default empty: no TLS.
	TLSCert string `toml:"tls_cert"`

	// TLSKey is the PEM file with its private key. Default empty.
	TLSKey string `toml:"tls_key"`

	// Plain allows unencrypted requests from other machines, here and at [upload]: for networks that
	// encrypt by themselves, and for trials. Default false.
	Plain bool `toml:"plain"`

	// TrustedProxies are the addresses and networks of encrypting proxies in front of this listener and [upload]. PROXY
	// headers (version 2) and X-Forwarded-For are believed only from them. Never name a proxy that passes on what
	// clients send at the start of a connection. Default none. At most 64.
	TrustedProxies []string `toml:"trusted_proxies"`

	// AllowedOrigins are the exact origins, such as https://app.example.com, that browsers may call from. Other origins
	// get 403; only GET /v1/credits answers them, without CORS headers. Default none.
	AllowedOrigins []string `toml:"allowed_origins"`

	// ReadsPerSecond is how many requests a second, creates not counted, one key may sustain; beyond Burst it gets 429.
	// Default 20. At least 1.
	ReadsPerSecond int `toml:"reads_per_second"`

	// Burst is how many requests one key may make at once. Default 40. At least 1.
	Burst int `toml:"burst"`

	// CreatesPerSecond is how many creates a second one key may sustain. Default 5. At least 1.
	CreatesPerSecond int `toml:"creates_per_second"`

	// CreatesBurst is how many creates one key may make at once. Default 20. At least 1.
	CreatesBurst int `toml:"creates_burst"`

	// DownloadsAtOnce is how many results files one key may read at the same time. Default 4. At least 1.
	DownloadsAtOnce int `toml:"downloads_at_once"`

	// BadKeysPerMinute is how many requests without a good key one network address (an IPv6 /64 is one) may send in a
	// minute before further ones get 429. It never affects requests with good keys. Default 20, a guess. At least 1.
	BadKeysPerMinute int `toml:"bad_keys_per_minute"`

	// Connections is how many connections may be open at once, shared by network address (an IPv6 /64 is one); at most
	// a quarter of the files that a node may open. One more gets 429 and is closed. Each takes some 20 KiB. Default
	// 4096. From 2 to 65536.
	Connections int `toml:"connections"`
}

// Dashboard is the web pages for customers, served at the addresses of [http].
type Dashboard struct {
	// Enabled serves the pages. Sign-in needs a PublicURL of [http] that begins with https:// or is
	// on this machine. Default true.
	Enabled bool `toml:"enabled"`

	// Contact is where people get help, such as an email address or a URL. Every page shows it. Default empty. At
	// most 200 bytes.
	Contact string `toml:"contact"`

	// SessionIdle ends a session that has requested no page for this long. Default 12h. From 1s, at most SessionLife.
	SessionIdle Duration `toml:"session_idle"`

	// SessionLife ends a session this long after sign-in. Default 168h. At most 2160h.
	SessionLife Duration `toml:"session_life"`

	// OIDCIssuer is the issuer URL of the OpenID Connect provider for sign-in, such as https://login.example.com. The
	// redirect URL to register there is PublicURL of [http] followed by /oidc/back. It begins with https://, or with
	// http:// on this machine. Default empty: no provider.
	OIDCIssuer string `toml:"oidc_issuer"`

	// OIDCClientID is this service's client ID at the provider. Default empty. Needed with OIDCIssuer.
	OIDCClientID string `toml:"oidc_client_id"`

	// OIDCSecretFile is the file with the client secret, which only the node's user may read.
	// Default empty. Needed with OIDCIssuer.
	OIDCSecretFile string `toml:"oidc_secret_file"`

	// OIDCName is the provider's name on buttons. Default "single sign-on". 1 to 50 bytes.
	OIDCName string `toml:"oidc_name"`
}

// Upload is the listener of the storage URL, which takes the CSV bytes.
type Upload struct {
	// Listen is the host:port of the storage URL. Port 0 takes any free one. Default 127.0.0.1:8082.
	Listen string `toml:"listen"`

	// PublicURL is how customers reach it, without a final slash; it is the start of every upload.url. Empty: http://
	// (https:// with a certificate) and Listen, with 127.0.0.1 in place of "all interfaces". Default
	// http://127.0.0.1:8082.
	PublicURL string `toml:"public_url"`

	// TLSCert is the PEM file with the certificate of this listener, if it differs from that of [http]. Default empty:
	// that of [http].
	TLSCert string `toml:"tls_cert"`

	// TLSKey is the PEM file with its private key. Default empty: that of [http].
	TLSKey string `toml:"tls_key"`

	// ExpiresAfter is how long an upload URL works. Default 24h. From 1s to 168h.
	ExpiresAfter Duration `toml:"expires_after"`

	// AtOnce is how many uploads may send bytes at the same time, with 256 KiB of memory each,
	// shared by workspace. One more gets 429 with Retry-After. Default 64: 16 MiB. From 2 to 4096.
	AtOnce int `toml:"at_once"`

	// Connections is how many connections to the storage URL may be open at once, shared as those of [http]; at most an
	// eighth of the files that a node may open. Default 1024. More than AtOnce, at most 65536.
	Connections int `toml:"connections"`

	// BytesPerSecond bounds how fast this node reads one workspace's uploads. 0 means no bound; otherwise at least
	// 262144. Default 0.
	BytesPerSecond int64 `toml:"bytes_per_second"`
}

// Admin is the operator's listener: health, metrics, operator commands.
type Admin struct {
	// Listen is its host:port, or a unix socket such as unix:/run/rollcall/admin.sock with mode
	// 0660. Keep it off public networks; off loopback it needs TLS. Port 0 takes any free one.
	// Default 127.0.0.1:8081.
	Listen string `toml:"listen"`

	// TLSCert is the PEM file with this listener's certificate, in the form that [http] has. Default empty: no TLS.
	TLSCert string `toml:"tls_cert"`

	// TLSKey is the PEM file with its private key. Default empty.
	TLSKey string `toml:"tls_key"`

	// Hosts are further names that a request's Host may have. Localhost, loopback addresses, the host of Listen and
	// the address that the connection came to are always allowed. Others get 403, against DNS rebinding. A unix
	// socket accepts any. Default none. At most 64.
	Hosts []string `toml:"hosts"`
}

// Ledger is the database of work and money.
type Ledger struct {
	// URL is sqlite:PATH for the embedded ledger of one node, or postgresql://USER@HOST:PORT/DATABASE?sslmode=verify-full
	// for CockroachDB or PostgreSQL; ?host=/FOLDER connects over a unix socket. Without sslmode=verify-full others may
	// read or redirect the connection. Put the password into PGPASSWORD or ~/.pgpass. Default sqlite:DATA_DIR/ledger.db.
	URL string `toml:"url"`

	// DiskReserve is how many bytes of its disk the embedded ledger keeps for settlements and money. With less free,
	// creates and uploads get 503 storage_unavailable. It does not apply to a database server, whose disk the node
	// can't see. 0 turns it off. Default 1073741824 (1 GiB). At least 0.
	DiskReserve int64 `toml:"disk_reserve"`
}

// Limits bound what a customer may send and store. They apply to new verifications.
type Limits struct {
	// MaxFileBytes is the largest CSV file; a create above it gets 413. Default 104857600 (100 MiB). At least 1.
	MaxFileBytes int64 `toml:"max_file_bytes"`

	// MaxRows is the most addresses in a new file, duplicates included; a larger file is refused as a whole. Each
	// address in work takes about 80 bytes of a node's memory. Default 1000000. At least 1.
	MaxRows int64 `toml:"max_rows"`

	// MaxOpenVerifications is how many unfinished verifications a workspace may have; one more gets
	// 429. `rollcall workspace limits` sets this, StoredBytes and UnpaidPerDay for one workspace.
	// Default 100. At least 1.
	MaxOpenVerifications int `toml:"max_open_verifications"`

	// FilesAtOnce is how many files one node works on, parked ones not counted, shared by workspace. Default 1000. From
	// 1 to 10000.
	FilesAtOnce int `toml:"files_at_once"`

	// FileBytesAtOnce is how many bytes of files one node has in memory. A quarter is for files up to 1 MiB. A
	// workspace of weight 1 has one larger file at a time, one of weight 3 has three. Default 536870912 (512 MiB). At
	// least 1.
	FileBytesAtOnce int64 `toml:"file_bytes_at_once"`

	// StoredBytes bounds the bytes that a workspace has stored: the declared lengths of its files, until they are
	// erased. A create above it gets 429. Default 10737418240 (10 GiB). At least 1.
	StoredBytes int64 `toml:"stored_bytes"`

	// UnpaidPerDay is how many verifications that never held a credit a workspace may create in 24 hours: not uploaded,
	// refused, cancelled early, or waiting for credits. One more gets 429. Default 1000. At least 1.
	UnpaidPerDay int `toml:"unpaid_per_day"`
}

// DNS is how the node looks up domains.
type DNS struct {
	// Servers are host:port of recursive resolvers, tried in turn. Empty means
	// those of the system. Default none. At most 8.
	Servers []string `toml:"servers"`

	// Timeout bounds one query to one server. Default 5s. From 10ms to 20s, the limit for all queries about one name.
	Timeout Duration `toml:"timeout"`

	// AtOnce is how many domains a node looks up at a time, shared by workspace; rollcall_dns_lookups_waiting counts
	// the waiting ones. Default 1000. From 1 to 100000.
	AtOnce int `toml:"at_once"`
}

// SMTP is how the node talks to receivers.
type SMTP struct {
	// Port is the port of every receiver. Default 25.
	Port int `toml:"port"`

	// HelloName is the name in EHLO. It should resolve to the source address and the PTR of that address should be this
	// name, or many receivers refuse us. Empty means the host's full name. Default empty.
	HelloName string `toml:"hello_name"`

	// ReturnPath is the address in MAIL FROM. It must exist. Empty means postmaster at the hello name. Default empty.
	ReturnPath string `toml:"return_path"`

	// SourceAddresses are the local IP addresses to speak from. Empty lets the system choose. Default none.
	SourceAddresses []string `toml:"source_addresses"`

	// AllowNetworks are special-use networks, such as 127.0.0.0/8, that may be dialled although the Internet does not
	// route them. Set this only for the lab: a stranger's DNS could point probes at your own network. Default none.
	AllowNetworks []string `toml:"allow_networks"`

	// ReceiversAtOnce is how many receivers a node has in memory, shared by workspace. Each takes 20 KB, and 60 KB more
	// for an SMTP session. While all have work the next one waits; customers see "connections" as the cause. Default
	// 2048. From 16 to 100000.
	ReceiversAtOnce int `toml:"receivers_at_once"`
}

// Identity is how the node checks what receivers judge a sender by: PTR, hello name, SPF, return path, port 25.
// `rollcall doctor` shows the results.
type Identity struct {
	// Enforce keeps a node that fails a check from probing. If it is false and a check fails, receivers refuse the
	// node and, sooner or later, all mail from its address; addresses that exist end as unknown. Default true.
	Enforce bool `toml:"enforce"`

	// PublicAddresses are the IP addresses that receivers see, if NAT makes them differ from the node's own. Empty:
	// SourceAddresses of [smtp], or what the system chooses. Default none. At most 64.
	PublicAddresses []string `toml:"public_addresses"`

	// Reach are mail hosts or domains, yours or with their owner's consent, that the node connects to every 15 minutes
	// to see whether port 25 is open. Empty: port 25 is judged by the node's own sessions. Default none. At most 8.
	Reach []string `toml:"reach"`

	// BlockLists are DNS zones of block lists (RFC 5782), asked daily about each address. Being listed is a failed check.
	// Read their terms: some forbid queries by commercial senders or through public resolvers. Default none. At most 8.
	BlockLists []string `toml:"block_lists"`
}

// Retry is how often and how long an undecided address is asked again.
type Retry struct {
	// GreylistWaits are the waits before the second, third, ... try when the receiver names no time; the last one is
	// repeated. Default 5m, 10m, 20m, 40m, 1h, 2h. From 1 to 24 waits of at least 1ms.
	GreylistWaits []Duration `toml:"greylist_waits"`

	// GiveUpAfter is how long after its first try an undecided address becomes unknown, and how long addresses wait for a
	// receiver that gives no answer. Default 6h. At least 1ms.
	GiveUpAfter Duration `toml:"give_up_after"`

	// ControlWaits are the waits between the control probes that show whether a domain accepts every address; it does
	// if three are accepted. The last one is repeated. Default 2s, 15s. From 1 to 24 waits of at least 1ms.
	ControlWaits []Duration `toml:"control_waits"`
}

// Throttle holds the limits of receivers.
type Throttle struct {
	// File is a TOML file with the tables [default], [receivers."..."] and [sources."..."], read on
	// top of these and again whenever it changes. It need not exist. Default throttle.toml.
	File string `toml:"file"`

	// Default applies to receivers without an exception.
	Default Allowance `toml:"default"`

	// Receivers are exceptions, by receiver key, MX host suffix or mail domain;
	// the narrowest wins, field by field. Default none.
	Receivers map[string]Allowance `toml:"receivers"`

	// Sources limit our own sources across all receivers, by IP address; "default" is the source whose address the
	// system chooses. Default none.
	Sources map[string]Source `toml:"sources"`

	places places // where each key was written, without the name of this table
}

// Allowance is the limits of one receiver for the whole cluster. A field that is not set is inherited.
type Allowance struct {
	// Connections is how many sessions may be open at once. Default 2. From 1 to 10000.
	Connections *int `toml:"connections,omitempty"`

	// ConnectionRate is how many sessions may be opened per unit of time. Default 30/min.
	ConnectionRate *Rate `toml:"connection_rate,omitempty"`

	// RcptRate is how many addresses may be asked about per unit of time. Default 5/s.
	RcptRate *Rate `toml:"rcpt_rate,omitempty"`

	// RcptsPerConnection is how many addresses one session may ask about. Default 50. At least 1.
	RcptsPerConnection *int `toml:"rcpts_per_connection,omitempty"`

	// RcptsPerTransaction is how many addresses may stand between MAIL and RSET: one at first, then doubled while every
	// reply is clear, up to this number or until the receiver says "too many". Default 20. At least 1.
	RcptsPerTransaction *int `toml:"rcpts_per_transaction,omitempty"`

	// RefusedPerSession is how many refused addresses end a session. Default 8. At least 1.
	RefusedPerSession *int `toml:"refused_per_session,omitempty"`

	// RefusedPerHour is how many addresses may be refused in an hour until the receiver is known to tolerate more.
	// Default 20. At least 1.
	RefusedPerHour *int `toml:"refused_per_hour,omitempty"`

	// RefusedShare allows more refusals than RefusedPerHour while they are at most this percentage of an hour's
	// replies. It is for receivers known to judge by percentage. Default 0; 20 or 30 for receivers that the program
	// knows. From 0 to 90.
	RefusedShare *int `toml:"refused_share,omitempty"`

	// Pipelining allows several commands in one packet where the receiver
	// offers it (RFC 2920) and its replies match them. Default true.
	Pipelining *bool `toml:"pipelining,omitempty"`

	// PipeliningDepth is how many addresses such a packet may ask about, approached like RcptsPerTransaction; an
	// unclear reply halves it. Default 64. At least 1.
	PipeliningDepth *int `toml:"pipelining_depth,omitempty"`

	// SessionAge is the age from which a session gets no more work. Default 5m. From 1s to 1h.
	SessionAge *Duration `toml:"session_age,omitempty"`

	// IdleTime is how long a session without work stays open. Default 2s. From 100ms to 5m.
	IdleTime *Duration `toml:"idle_time,omitempty"`

	// TLS is opportunistic (encrypted where it is offered, RFC 7435), required (no session without it) or off. Default
	// opportunistic; required for receivers that the program knows to require it.
	TLS *string `toml:"tls,omitempty"`

	// AddressFamily says which addresses of hosts may be dialled: any, ipv4 or ipv6. Default any.
	AddressFamily *string `toml:"address_family,omitempty"`

	// RetryWaits are the waits before an address is asked again and after a refusal of us, if the receiver names no
	// time; the last one is repeated. Empty: those of [retry]. Default none. At most 8, each from 1s to 24h.
	RetryWaits *[]Duration `toml:"retry_waits,omitempty"`

	// Pause is yes (nothing is asked; sessions end after the command in progress), drain (open sessions go on, none is
	// opened) or no. Default no.
	Pause *string `toml:"pause,omitempty"`
}

// Source limits one of this service's sources across all receivers.
type Source struct {
	// Pause is yes (the source is not used; its sessions end after the command in progress), drain (its open sessions
	// go on, it opens none) or no. Default no.
	Pause *string `toml:"pause,omitempty"`

	// RcptsPerDay is how many addresses it may ask about from one midnight UTC to the next; 0 means no bound. Default
	// 0. At least 0.
	RcptsPerDay *int `toml:"rcpts_per_day,omitempty"`

	// WarmUpFrom is the first day of a warm-up, such as "2026-11-21". RcptsPerDay holds on that day
	// and doubles on each day after it. Default none.
	WarmUpFrom *string `toml:"warm_up_from,omitempty"`
}

// Verdict configures how SMTP replies are judged.
type Verdict struct {
	// File is the file of your own rules, which take precedence over the program's. A faulty file keeps the node from
	// starting; `rollcall verdict check FILE` checks it. It is read again whenever it changes. The file of the default
	// name need not exist; empty means none. Default verdict.toml.
	File string `toml:"file"`
}

// Cluster is how nodes find each other. Several nodes need a shared ledger. Off loopback, the gossip keys and the three
// TLS files are required.
type Cluster struct {
	// Name keeps clusters on one network apart: nodes with another name are refused. Default rollcall. At most 255 bytes.
	Name string `toml:"name"`

	// Node is this node's identity. Empty: made once and kept in DataDir. No two nodes can run with the same one.
	// Default empty.
	Node string `toml:"node"`

	// GossipListen is the host:port of the membership gossip, TCP and UDP. Default 127.0.0.1:7946.
	GossipListen string `toml:"gossip_listen"`

	// ActorListen is the host:port for messages between nodes, TCP. Default 127.0.0.1:7947.
	ActorListen string `toml:"actor_listen"`

	// Advertise is the host name or address at which other nodes reach this one. Empty: the host of GossipListen.
	// Required when that is all interfaces. Default empty.
	Advertise string `toml:"advertise"`

	// Join lists the gossip addresses (host:port) of some members; this node's own does no harm, and a name may resolve
	// to many. Absent ones are tried every 5 s. Empty: wait for others to join. Default none. At most 64.
	Join []string `toml:"join"`

	// AllowNetworks are the networks that members and gossip may come from. Default loopback and private networks. At
	// least one.
	AllowNetworks []string `toml:"allow_networks"`

	// GossipKeyFile holds the keys that encrypt the gossip, the same on every node; `rollcall cluster keys new FILE`
	// makes it. Default empty.
	GossipKeyFile string `toml:"gossip_key_file"`

	// TLSCAFile holds the CA's certificate for mutual TLS between nodes; set all three
	// of these files or none. `rollcall cluster cert` makes them. Default empty.
	TLSCAFile string `toml:"tls_ca_file"`

	// TLSCertFile holds this node's certificate. Default empty.
	TLSCertFile string `toml:"tls_cert_file"`

	// TLSKeyFile holds its private key. Default empty.
	TLSKeyFile string `toml:"tls_key_file"`
}

// Retention is how long data is kept.
type Retention struct {
	// Uploads is how long the uploaded bytes stay after a verification is final. Default 24h. At least 1s.
	Uploads Duration `toml:"uploads"`

	// Results is how long addresses and outcomes stay after that; then results
	// answer 404 results_expired. Default 720h. At least 1s.
	Results Duration `toml:"results"`

	// Funding is how long a verification may wait for credits before it fails
	// with funding_expired. Default 720h. At least 1s.
	Funding Duration `toml:"funding"`
}

// Audit is how the node checks its own ledger.
type Audit struct {
	// Every is how often this node recomputes every invariant of the ledger. "0s" is never. Default 1h. From 1s.
	Every Duration `toml:"every"`
}

// Log is what the node writes to standard error.
type Log struct {
	// Level is debug, info, warn or error. Addresses appear at debug only. Default info.
	Level string `toml:"level"`

	// Format is json or text. Default json.
	Format string `toml:"format"`
}

// Tracing sends spans to an OpenTelemetry collector: how long requests, uploads, files, settlements and SMTP sessions
// took. Spans hold no address, key or text from others.
type Tracing struct {
	// Endpoint is the host:port of a collector for OTLP over HTTP, usually port 4318; write a URL for TLS or a path other
	// than /v1/traces. Headers, such as a token, go into OTEL_EXPORTER_OTLP_HEADERS. Empty means off. Default empty.
	Endpoint string `toml:"endpoint"`

	// Sample is the fraction of traces to send. Default 0.01. From 0 to 1.
	Sample float64 `toml:"sample"`
}
