package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollcall/http/listen/listentest"
)

// TestProxies runs a node behind Caddy and behind nginx with the files of deploy, and a file is verified through them
// over TLS: the API, the upload and the results.
func TestProxies(t *testing.T) {
	t.Parallel()
	for program, p := range map[string]struct {
		file  string
		start func(c *cli, site string) []string
	}{"caddy": {"Caddyfile", startsCaddy}, "nginx": {"nginx.conf", startsNginx}} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(program); err != nil {
				t.Skip("not run: there is no " + program)
			}
			site, err := os.ReadFile(filepath.Join(HouseRoot, "deploy", p.file))
			if err != nil {
				t.Fatal(err)
			}
			front, upload := freeAddress(t), freeAddress(t)
			c, service, _ := newCustomerCLI(t, "ROLLCALL_HTTP_PUBLIC_URL=https://"+front, "ROLLCALL_UPLOAD_LISTEN="+upload,
				"ROLLCALL_UPLOAD_PUBLIC_URL=https://"+front, "ROLLCALL_HTTP_TRUSTED_PROXIES=127.0.0.1")
			cert, key, _ := listentest.WriteCertificate(t, c.folder, time.Now().Add(time.Hour))
			here := strings.NewReplacer("127.0.0.1:8080", strings.TrimPrefix(service, "http://"), "127.0.0.1:8082", upload,
				"verify.example.com {", "https://"+front+" {\n\ttls "+cert+" "+key,
				"listen 80;", "listen "+freeAddress(t)+";", "listen 443", "listen "+front,
				"/etc/letsencrypt/live/verify.example.com/fullchain.pem", cert,
				"/etc/letsencrypt/live/verify.example.com/privkey.pem", key)
			proxy := exec.CommandContext(t.Context(), program, p.start(c, here.Replace(string(site)))...)
			proxy.Env = append(os.Environ(), "HOME="+c.folder, "XDG_DATA_HOME="+c.folder, "XDG_CONFIG_HOME="+c.folder)
			var said strings.Builder
			proxy.Stdout, proxy.Stderr = &said, &said
			if err := proxy.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- proxy.Wait() }()
			t.Cleanup(func() { _ = proxy.Process.Kill(); <-ended })
			until(t, func() (bool, string) {
				select {
				case err := <-ended:
					ended <- err
					t.Fatalf("%v: %s", err, said.String())
				default:
				}
				conn, err := net.Dial("tcp", front)
				if err == nil {
					_ = conn.Close()
				}
				return err == nil, fmt.Sprint(err)
			})
			c.environ = append(c.environ, "SSL_CERT_FILE="+cert)
			c.write("list.csv", "email\nanna@acme-clean.test\nnobody@gone.invalid\n")
			code, out, errs := c.run("verify", "list.csv", "--api", "https://"+front)
			if code != exitDone || !strings.Contains(out, "anna@acme-clean.test,valid") {
				t.Errorf("got code %d, %s and %s", code, out, errs)
			}
		})
	}
}

// startsCaddy gives the arguments that run Caddy with one site, and nothing of its own beside it.
func startsCaddy(c *cli, site string) []string {
	c.write("Caddyfile", "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"+site)
	return []string{"run", "--adapter", "caddyfile", "--config", filepath.Join(c.folder, "Caddyfile")}
}

// startsNginx gives the arguments that run nginx with one site, in the test's folder.
func startsNginx(c *cli, site string) []string {
	c.write("site.conf", site)
	paths := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		paths += kind + "_temp_path " + filepath.Join(c.folder, kind) + ";\n"
	}
	c.write("nginx.conf", "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {}\n"+
		"http {\naccess_log off;\n"+paths+"include site.conf;\n}\n")
	return []string{"-p", c.folder, "-c", filepath.Join(c.folder, "nginx.conf")}
}
