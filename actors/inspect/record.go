package inspect

// Record is what one node kept of the last hours: bounded, and gone with the process.
type Record struct {
	Node      string           `json:"node"`
	From      int64            `json:"from"` // Unix seconds of the oldest minute
	Receivers []ReceiverRecord `json:"receivers"`
	Dropped   int              `json:"dropped"` // receivers that found no room
}

// ReceiverRecord is what was kept of one receiver.
type ReceiverRecord struct {
	Key     string   `json:"key"`
	Domain  string   `json:"domain,omitempty"` // one of its mail domains, for an example
	Minutes []Minute `json:"minutes"`
	Replies []Heard  `json:"replies"`
	Lost    int      `json:"lost"` // replies of other texts that found no room
}

// Heard is one text of a receiver, cleaned, and how often it came.
type Heard struct {
	Hour     int64  `json:"hour"` // Unix seconds of its beginning
	Stage    uint8  `json:"stage"`
	Code     int    `json:"code"`
	Enhanced string `json:"enhanced,omitempty"`
	Text     string `json:"text"`
	Trouble  uint8  `json:"trouble,omitempty"` // evidence.Trouble, when there was no reply
	Host     string `json:"host"`              // rules look at its suffix
	TLS      bool   `json:"tls,omitempty"`
	Rule     string `json:"rule"` // that judged it
	Did      string `json:"did"`  // outcome or action, as a word
	Reason   string `json:"reason"`
	Times    int    `json:"times"`
}

// Replayed is what candidate rules would have made of the record.
type Replayed struct {
	Hours     float64          `json:"hours"` // that the record reaches back, without its newest minute
	Asked     int              `json:"asked"`
	Receivers []ReceiverReplay `json:"receivers"` // that would differ, the most asked first
	Same      int              `json:"same"`      // receivers for which nothing would differ
	Verdicts  []VerdictChange  `json:"verdicts"`
	Warnings  []string         `json:"warnings"` // as throttle check has them
	Silent    []Silent         `json:"silent"`
}

// ReceiverReplay is one receiver under the candidate rules.
type ReceiverReplay struct {
	Key     string        `json:"key"`
	Changes []FieldChange `json:"changes"`
	Asked   int           `json:"asked"` // in the record
	Would   int           `json:"would"` // that the candidate would have let be asked in the same time, at most
	// AtLeast says that Would is at least, not at most, so many: more waited than the record
	// has. Delay is at most what it is then.
	AtLeast bool `json:"at_least,omitempty"`
	// Delay is how much later the last of the recorded addresses would have been asked, those
	// that waited at its end counted in, in seconds; below 0: sooner.
	Delay float64 `json:"delay"`
	// Minutes in which each field of the candidate would have been the one that holds back.
	Fired map[string]int `json:"fired"`
	// Why more is allowed and nobody can know what the receiver would have made of it.
	Unknown string `json:"unknown,omitempty"`
}

// FieldChange is a field that would be another.
type FieldChange struct {
	Field string `json:"field"`
	Now   string `json:"now"`
	Would string `json:"would"`
}

// VerdictChange is a text that candidate rules would judge otherwise.
type VerdictChange struct {
	Receiver string `json:"receiver"`
	Sample   string `json:"sample"` // the reply, cleaned
	Times    int    `json:"times"`
	Now      string `json:"now"` // rule and what it did
	Would    string `json:"would"`
}
