package config

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// ShowTOML writes c as a file that Load reads, without the password of the ledger's URL.
func (c Config) ShowTOML() ([]byte, error) {
	c.Ledger.URL = hidePassword(c.Ledger.URL)
	text, err := toml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write the configuration as TOML: %w", err)
	}
	return text, nil
}

// ShowJSON writes what ShowTOML does, as JSON.
func (c Config) ShowJSON() ([]byte, error) {
	text, err := c.ShowTOML()
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := toml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("read the configuration back: %w", err)
	}
	out, err := json.MarshalIndent(tree, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the configuration as JSON: %w", err)
	}
	return append(out, '\n'), nil
}

// severalHosts takes the further hosts out of a database URL.
var severalHosts = regexp.MustCompile(`^([a-z]+://(?:[^/?#]*@)?[^/?#,]*)((?:,[^/?#,]*)+)(.*)$`)

// hidePassword replaces the passwords in a database URL: before the @, and among
// the parameters.
func hidePassword(text string) string {
	// Several hosts, each with a port, are no URL for Go: only the first is parsed.
	hosts := severalHosts.FindStringSubmatch(text)
	if hosts != nil {
		text = hosts[1] + hosts[3]
	}
	u, err := url.Parse(text)
	if err != nil {
		return "(unreadable)"
	}
	if hosts != nil {
		u.Host += hosts[2]
	}
	if u.Scheme == "sqlite" {
		return text
	}
	q := u.Query()
	for name := range q {
		if strings.Contains(strings.ToLower(name), "password") {
			q.Set(name, "xxxxx")
			u.RawQuery = q.Encode()
		}
	}
	return u.Redacted()
}
