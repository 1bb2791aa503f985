package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cluster/secure"
	"rollcall/cmd/rollcall/term"
)

// The files of a certificate folder.
const (
	caName     = "ca"
	certSuffix = ".crt"
	keySuffix  = ".key"
)

// daysMax bounds --days: a certificate cannot outlive its CA.
const daysMax = int(secure.AuthorityValidity / (24 * time.Hour))

// certView is a certificate as the commands show it.
type certView struct {
	Name    string `json:"name"`
	Issuer  string `json:"issuer,omitempty"`
	CA      bool   `json:"ca"`
	Cert    string `json:"cert_file"`
	Key     string `json:"key_file,omitempty"`
	CAFile  string `json:"ca_file,omitempty"`
	Begins  string `json:"begins_at"`
	Expires string `json:"expires_at"`
}

func newClusterCert(environment) *cobra.Command {
	c := asGroup(&cobra.Command{Use: "cert",
		Short: "Make the certificates by which the nodes of a cluster know each other"})
	c.AddCommand(newClusterCertInit(), newClusterCertNode(), newClusterCertShow())
	return c
}

func dirFlag(c *cobra.Command) *string {
	return c.Flags().String("dir", "certs", "the folder of the CA and of the certificates made with it")
}

func newClusterCertInit() *cobra.Command {
	c := &cobra.Command{Use: "init", Short: "Make a CA for a cluster: ca.crt and ca.key", Args: wantArgs(),
		Long: "Make a CA for a cluster, valid for ten years: ca.crt, which every node gets, and ca.key, which\n" +
			"no node gets. A CA that is there already is never overwritten."}
	dir, asJSON := dirFlag(c), jsonFlag(c)
	name := c.Flags().String("cluster", "rollcall", "the cluster's name, for people who look at the certificate")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ca, err := secure.NewAuthority(*name, time.Now(), secure.AuthorityValidity)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(*dir, 0o700); err != nil {
			return fmt.Errorf("make the folder: %w", err)
		}
		if err := writePair(*dir, caName, ca.Pair(), false); err != nil {
			return err
		}
		view, err := viewCert(filepath.Join(*dir, caName+certSuffix))
		if err != nil {
			return err
		}
		view.Key = filepath.Join(*dir, caName+keySuffix)
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), view)
		}
		fmt.Fprintf(c.OutOrStdout(), "%s  the CA, valid until %s: copy it to every node\n"+
			"%s  its key: keep it off the nodes, whoever has it can make members\n\n"+
			"Next, for each node:  rollcall cluster cert node NAME --dir %s\n",
			view.Cert, view.Expires, view.Key, *dir)
		return nil
	}
	return c
}

func newClusterCertNode() *cobra.Command {
	c := &cobra.Command{Use: "node NAME", Short: "Make the certificate of a node: NAME.crt and NAME.key",
		Args: wantArgs("NAME"),
		Long: "Make the certificate of a node with the CA of `rollcall cluster cert init`. NAME becomes the\n" +
			"member's name; it has the form of a host name and need not resolve. No two nodes may have the same.\n" +
			"A running node uses a renewed certificate within seconds of its files being replaced."}
	dir, asJSON := dirFlag(c), jsonFlag(c)
	days := c.Flags().Int("days", int(secure.NodeValidity/(24*time.Hour)), "how long the certificate is valid")
	renew := c.Flags().Bool("renew", false, "replace the files of this name if they are there")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *days < 1 || *days > daysMax {
			return term.UsageError(fmt.Sprintf("--days %d: 1 to %d are possible", *days, daysMax))
		}
		if err := secure.CheckName(args[0]); err != nil || args[0] == caName {
			return term.UsageError(fmt.Sprintf("%q cannot be a node's name: lower-case letters, digits, hyphens and "+
				"dots, as in node-1.example.net", args[0]))
		}
		if err := issueCert(*dir, args[0], time.Duration(*days)*24*time.Hour, *renew); err != nil {
			return err
		}
		return printNodeCert(c, *dir, args[0], *asJSON)
	}
	return c
}

// issueCert makes the files of a node with the CA of a folder.
func issueCert(dir, name string, validity time.Duration, renew bool) error {
	certFile, keyFile := filepath.Join(dir, caName+certSuffix), filepath.Join(dir, caName+keySuffix)
	if err := secure.CheckKeyFile(keyFile); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is no CA in %s: make one with `rollcall cluster cert init`: %w", dir, err)
		}
		return err
	}
	var pair secure.Pair
	var err error
	if pair.Cert, err = os.ReadFile(certFile); err != nil {
		return fmt.Errorf("read the CA: %w", err)
	}
	if pair.Key, err = os.ReadFile(keyFile); err != nil {
		return fmt.Errorf("read the CA's key: %w", err)
	}
	ca, err := secure.ReadAuthority(pair)
	if err != nil {
		return err
	}
	made, err := ca.Issue(name, time.Now(), validity)
	if err != nil {
		return err
	}
	return writePair(dir, name, made, renew)
}

func printNodeCert(c *cobra.Command, dir, name string, asJSON bool) error {
	view, err := viewCert(filepath.Join(dir, name+certSuffix))
	if err != nil {
		return err
	}
	view.Key = filepath.Join(dir, name+keySuffix)
	view.CAFile = filepath.Join(dir, caName+certSuffix)
	if asJSON {
		return term.PrintJSON(c.OutOrStdout(), view)
	}
	fmt.Fprintf(c.OutOrStdout(), "%s  the certificate of %s, valid until %s\n"+
		"%s  its key\n\n"+
		"Copy both and %s to the node, the key readable by its user only, and set there:\n\n"+
		"[cluster]\n"+
		"tls_ca_file = \"/etc/rollcall/%s\"\n"+
		"tls_cert_file = \"/etc/rollcall/%s\"\n"+
		"tls_key_file = \"/etc/rollcall/%s\"\n",
		view.Cert, name, view.Expires, view.Key, view.CAFile,
		caName+certSuffix, name+certSuffix, name+keySuffix)
	return nil
}

func newClusterCertShow() *cobra.Command {
	c := &cobra.Command{Use: "show FILE", Short: "Show whose a certificate is, who made it and when it ends",
		Args: wantArgs("FILE")}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		view, err := viewCert(args[0])
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), view)
		}
		return term.PrintTable(c.OutOrStdout(), []string{"NAME", "ISSUER", "BEGINS", "EXPIRES"},
			[][]string{{view.Name, view.Issuer, view.Begins, view.Expires}})
	}
	return c
}

// viewCert reads a certificate file.
func viewCert(file string) (v certView, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return v, fmt.Errorf("read the certificate: %w", err)
	}
	cert, err := secure.ReadCertificate(text)
	if err != nil {
		return v, fmt.Errorf("read %s: %w", file, err)
	}
	v = certView{Name: cert.Subject.CommonName, Issuer: cert.Issuer.CommonName, CA: cert.IsCA, Cert: file,
		Begins: cert.NotBefore.UTC().Format(time.RFC3339), Expires: cert.NotAfter.UTC().Format(time.RFC3339)}
	if len(cert.DNSNames) > 0 {
		v.Name = cert.DNSNames[0]
	}
	return v, nil
}

// writePair writes a key and its certificate. A file that is there is replaced
// whole or, unless replace is set, refused.
func writePair(dir, name string, pair secure.Pair, replace bool) error {
	write := writeNew
	if replace {
		write = writeOver
	}
	keyFile, certFile := filepath.Join(dir, name+keySuffix), filepath.Join(dir, name+certSuffix)
	if _, err := os.Lstat(certFile); err == nil && !replace {
		return fmt.Errorf("%s: %w", certFile, fs.ErrExist)
	}
	if err := write(keyFile, pair.Key, 0o600); err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	if err := write(certFile, pair.Cert, 0o644); err != nil {
		return fmt.Errorf("write the certificate: %w", err)
	}
	return nil
}

// writeNew writes a file where none is.
func writeNew(name string, text []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// writeOver puts a file in the place of another, so that a reader meets one of
// them, whole.
func writeOver(name string, text []byte, mode fs.FileMode) error {
	part, err := os.CreateTemp(filepath.Dir(name), ".rollcall-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = part.Write(text)
	err = errors.Join(err, part.Chmod(mode), part.Sync(), part.Close())
	if err == nil {
		err = os.Rename(part.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part.Name()))
	}
	return nil
}
