package secure

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"strings"
)

// nameMax bounds a node's name in bytes. It travels in the gossip's card, which
// has 512 bytes for everything; the longest names in use, those of pods, have about 60.
const nameMax = 128

// labelMax is the longest part of a host name (RFC 1035 §2.3.4).
const labelMax = 63

// CheckName says what is wrong with a node name, as an ErrName. A name has the form
// of a host name in lower case (RFC 1123 §2.1) of at most 128 bytes; it need not
// resolve, and it is no IP address and no pattern.
func CheckName(name string) error {
	if name == "" || len(name) > nameMax {
		return fmt.Errorf("name %q has %d bytes, 1 to %d are possible: %w", name, len(name), nameMax, ErrName)
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return fmt.Errorf("name %q is an IP address: %w", name, ErrName)
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > labelMax || label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("name %q has a part that is empty, over %d bytes, or begins or ends with a "+
				"hyphen: %w", name, labelMax, ErrName)
		}
		if i := strings.IndexFunc(label, strange); i >= 0 {
			return fmt.Errorf("name %q has %q; a-z, 0-9, hyphen and dot are possible: %w", name, label[i], ErrName)
		}
	}
	return nil
}

func strange(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
}

// nameIn is the name of the member that a certificate was made for: its first DNS
// name, in lower case.
func nameIn(c *x509.Certificate) (string, error) {
	if len(c.DNSNames) == 0 {
		return "", fmt.Errorf("it has no DNS name, which would be the node's name: %w", ErrCertificate)
	}
	name := strings.ToLower(c.DNSNames[0])
	return name, CheckName(name)
}
