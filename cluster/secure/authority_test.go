package secure_test

import (
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"rollcall/cluster/secure"
)

func TestANodeCertificateSaysOnlyWhatItMust(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ca, err := secure.NewAuthority("mail", now, secure.AuthorityValidity)
	if err != nil {
		t.Fatal(err)
	}
	again, err := secure.ReadAuthority(ca.Pair())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := again.Issue("node-1", now, secure.NodeValidity)
	if err != nil {
		t.Fatal(err)
	}
	root, err := secure.ReadCertificate(ca.Pair().Cert)
	if err != nil {
		t.Fatal(err)
	}
	c, err := secure.ReadCertificate(pair.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CheckSignatureFrom(root); err != nil {
		t.Errorf("the CA's signature: %v", err)
	}
	if !slices.Equal(c.DNSNames, []string{"node-1"}) || len(c.IPAddresses) != 0 || c.IsCA {
		t.Errorf("names %v, addresses %v, CA %v", c.DNSNames, c.IPAddresses, c.IsCA)
	}
	uses := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	if !slices.Equal(c.ExtKeyUsage, uses) {
		t.Errorf("uses %v, want both sides of a connection", c.ExtKeyUsage)
	}
	if !c.NotBefore.Equal(now.Add(-time.Hour)) || !c.NotAfter.Equal(now.Add(secure.NodeValidity)) {
		t.Errorf("valid from %s to %s", c.NotBefore, c.NotAfter)
	}
	if !root.IsCA || !root.MaxPathLenZero || root.Subject.CommonName != "CA of mail" {
		t.Errorf("CA %v, path length zero %v, subject %s", root.IsCA, root.MaxPathLenZero, root.Subject)
	}
}

func TestIssueRefuses(t *testing.T) {
	now := time.Now()
	ca, err := secure.NewAuthority("mail", now, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, node string
		validity   time.Duration
		want       error
	}{
		{"a name that is none", "no name", time.Hour, secure.ErrName},
		{"an end after the CA's", "a", 25 * time.Hour, secure.ErrCertificate},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := ca.Issue(c.node, now, c.validity); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestANameLongerThanACommonNameIsIssued(t *testing.T) {
	ca, err := secure.NewAuthority("mail", time.Now(), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("long.", 15) + "name"
	pair, err := ca.Issue(name, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := secure.ReadCertificate(pair.Cert); err != nil || c.DNSNames[0] != name {
		t.Errorf("certificate %v, %v", c, err)
	}
}

func TestReadAuthorityRefusesWhatIsNoCA(t *testing.T) {
	ca, err := secure.NewAuthority("mail", time.Now(), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	node, err := ca.Issue("a", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string]secure.Pair{
		"a node's":          node,
		"another key":       {Cert: ca.Pair().Cert, Key: node.Key},
		"nothing":           {},
		"key and no cert":   {Key: ca.Pair().Key},
		"cert in key place": {Cert: ca.Pair().Cert, Key: ca.Pair().Cert},
	} {
		if _, err := secure.ReadAuthority(pair); !errors.Is(err, secure.ErrCertificate) {
			t.Errorf("%s: got %v, want %v", name, err, secure.ErrCertificate)
		}
	}
	if _, err := secure.ReadCertificate(ca.Pair().Key); !errors.Is(err, secure.ErrCertificate) {
		t.Errorf("a key read as a certificate: %v", err)
	}
}
