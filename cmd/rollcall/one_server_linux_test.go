package main

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	composecli "github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
)

// apartLines make a root whose changes go to $1, an empty folder; of this machine only the folder $2 can be written.
// The root has only the devices that every program needs. The other arguments are the command to run in it.
//
//go:embed testdata/apart.sh
var apartLines string

// manager does what systemctl does in the document and in the package's scripts. It runs the ExecStart lines of the
// installed units unchanged, as their user and in their folder, waits until the node serves, and restarts it.
//
//go:embed testdata/systemctl.sh
var manager string

// TestOneServer runs docs/start/one-server.md with the package of this tree, on a copy of this machine whose changes
// are thrown away. User, folders, configuration, units, backup and the restart by an upgrade are real. A few shell
// lines replace systemctl, because the copy is not booted. Receivers can't be reached there.
func TestOneServer(t *testing.T) {
	if !effort.Long() {
		t.Skip("builds a package: only with -long")
	}
	for _, program := range []string{"unshare", "setpriv", "dpkg", "caddy", "curl", "systemd-sysusers"} {
		if _, err := exec.LookPath(program); err != nil || os.Geteuid() != 0 {
			t.Skip("the lines are not run: this needs root, dpkg, systemd's programs, caddy and curl")
		}
	}
	folder := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "run", "./cmd/release", "--out", folder,
		"--platforms", "linux/"+runtime.GOARCH)
	build.Dir = HouseRoot
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// A script's shell looks for the program in its folder.
	effort.OK(t, os.Symlink("/usr/bin/rollcall", filepath.Join(folder, "rollcall")))
	out := script{document: "start/one-server.md", folder: folder, standIns: map[string]string{"systemctl": manager},
		names: map[string]string{"linux_amd64": "linux_" + runtime.GOARCH},
		inside: []string{"unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-c", apartLines, "sh",
			t.TempDir(), filepath.Dir(folder), "env", "-C", folder}}.run(t)
	all := strings.Join(out, "\n")
	holds(t, all, "rollcall.toml is fine", "Valid configuration", "active\n", `"status":"ready"`,
		"rc_", "/link/", "every invariant holds", "restarted, as rollcall\n")
}

// TestUnits: systemd accepts the units, apart from the place of the binary, and rates the node as well confined.
func TestUnits(t *testing.T) {
	t.Parallel()
	effort.Children(t)
	effort.Unraced(t, "systemd reads files")
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("the units are not checked: there is no systemd-analyze")
	}
	name := effort.Must(binary())(t)
	folder, files := t.TempDir(), []string{}
	for file, text := range textsOf(t, []string{"deploy"}, []string{".service", ".timer"}) {
		files = append(files, filepath.Join(folder, file))
		text = strings.ReplaceAll(text, "/usr/bin/rollcall ", name+" ")
		effort.OK(t, os.WriteFile(files[len(files)-1], []byte(text), 0o600))
	}
	for _, args := range [][]string{append([]string{"verify", "--man=no"}, files...),
		{"calendar", "hourly"}, {"security", "--offline=true", "--threshold=20", filepath.Join(folder, "rollcall.service")}} {
		out, err := exec.Command(analyze, args...).CombinedOutput()
		effort.ErrorIf(t, err != nil || args[0] == "verify" && strings.Contains(string(out), folder),
			"systemd-analyze %s: %v\n%s", args[0], err, out)
	}
}

// readCompose reads deploy/compose.yaml as `docker compose config` does.
func readCompose(t *testing.T) *types.Project {
	t.Helper()
	options := effort.Must(composecli.NewProjectOptions([]string{filepath.Join(HouseRoot, "deploy", "compose.yaml")}))(t)
	return effort.Must(options.LoadProject(context.Background()))(t)
}

// TestComposeFile: the file is valid for Compose, images are pinned, ports are published on this machine only, and
// each node's settings are valid.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	for name, s := range readCompose(t).Services {
		_, version, _ := strings.Cut(filepath.Base(s.Image), ":")
		effort.ErrorIf(t, s.Image != "rollcall" && (version == "" || version == "latest"),
			"%s: the image %s has no version", name, s.Image)
		for _, p := range s.Ports {
			effort.Is(t, p.HostIP, "127.0.0.1", fmt.Sprintf("%s: port %s is published at", name, p.Published))
		}
		if strings.HasPrefix(name, "node-") {
			effort.Denied(config.Load("", environOf(s)))(t, nil, name)
		}
	}
}

// environOf returns the environment of a service, one NAME=value each.
func environOf(s types.ServiceConfig) (environ []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Environment)) {
		if value := s.Environment[name]; value != nil {
			environ = append(environ, name+"="+*value)
		}
	}
	return environ
}

// TestComposeRuns starts the services of compose.yaml as processes on a network of their own: database, migration,
// rights, lab, nodes, the verification, and Prometheus. It leaves out Grafana and the image.
func TestComposeRuns(t *testing.T) {
	if !effort.Long() {
		t.Skip("starts a database and three nodes: only with -long")
	}
	needTourTools(t)
	folder, project := tourFolder(t), readCompose(t)
	examples := effort.Must(filepath.Abs(filepath.Join(HouseRoot, "examples")))(t)
	rights := effort.Must(filepath.Abs(filepath.Join(HouseRoot, "deploy", "rights.sql")))(t)
	here := strings.NewReplacer("@db:", "@127.0.0.1:", "/examples/", examples+"/", "/rights.sql", rights)
	// lines runs a service's command with its environment. A part in quotes stays one argument.
	lines := func(name string) string {
		s := project.Services[name]
		command := slices.Concat(s.Entrypoint, s.Command)
		if s.Image == "rollcall" && len(s.Entrypoint) == 0 {
			command = slices.Insert(command, 0, "rollcall")
		}
		data := "node-1"
		if strings.HasPrefix(name, "node-") {
			data = name
		}
		line := "env ROLLCALL_DATA_DIR=" + data
		for _, word := range append(environOf(s), command...) {
			if !strings.HasPrefix(word, "ROLLCALL_DATA_DIR=") {
				line += " " + quotedForShell(here.Replace(word))
			}
		}
		return line
	}
	text := `set -euo pipefail
export PATH="$PWD:$PATH:$(ls -d /usr/lib/postgresql/*/bin | tail -1)"
initdb -D pg -U postgres --auth=trust --encoding=UTF8 > pg.log
pg_ctl -D pg -l pg.log -o "-h 127.0.0.1 -p 5432 -k $PWD" -w start > /dev/null
psql -q -h 127.0.0.1 -U postgres -f users.sql
` + lines("migrate") + "\n" + lines("rights") + " > /dev/null\n" + lines("lab") + " > lab.log 2>&1 &\n"
	for n := 1; n <= 3; n++ {
		text += fmt.Sprintf("%s > node-%d.log 2>&1 &\n", lines(fmt.Sprint("node-", n)), n)
	}
	for _, port := range []string{"8081", "8181", "8281"} {
		text += "curl -s -S --retry 60 --retry-all-errors -f -o /dev/null 127.0.0.1:" + port + "/readyz\n"
	}
	text += "rollcall cluster members --admin http://127.0.0.1:8081 --token $(cat node-1/admin.token)\n" +
		lines("verify") + "\n"
	if _, err := exec.LookPath("prometheus"); err == nil {
		configuration := effort.Must(filepath.Abs(filepath.Join(HouseRoot, "deploy", "prometheus", "prometheus.yml")))(t)
		text += "prometheus --config.file=" + configuration + " --storage.tsdb.path=prometheus > prometheus.log 2>&1 &\n" +
			"until curl -s '127.0.0.1:9090/api/v1/query?query=count(up==1)' | grep -q '\"3\"'; do sleep 1; done\n"
	}
	for name, body := range map[string]string{"run.sh": text, "users.sql": project.Configs["users"].Content} {
		effort.OK(t, os.WriteFile(filepath.Join(folder, name), []byte(body), 0o644))
	}
	run := exec.CommandContext(t.Context(), "unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
		"sh", "-c", fmt.Sprintf("ip link set lo up && exec setpriv --reuid=%[1]d --regid=%[1]d --clear-groups bash run.sh",
			nobody))
	run.Dir, run.Env = folder, (&cli{t: t, environ: []string{"HOME=" + folder}}).command(t.Context()).Env
	out, err := run.CombinedOutput()
	if err != nil {
		logs, _ := exec.Command("sh", "-c", "tail -n 5 "+folder+"/*.log").CombinedOutput()
		t.Fatalf("%v\n%s\n%s", err, out, logs)
	}
	said := string(out)
	effort.ErrorIf(t, strings.Count(said, "serving") != 3 || !strings.Contains(said, "every invariant holds") ||
		strings.Count(said, ",valid,") < 10, "got\n%s", said)
}

// TestProxies runs a node behind Caddy and behind nginx with the files of deploy. A file is verified through them
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
			site := effort.Must(os.ReadFile(filepath.Join(HouseRoot, "deploy", p.file)))(t)
			front, upload := freeAddress(t), freeAddress(t)
			c, service, _ := newCustomerCLI(t, "ROLLCALL_HTTP_PUBLIC_URL=https://"+front, "ROLLCALL_UPLOAD_LISTEN="+upload,
				"ROLLCALL_UPLOAD_PUBLIC_URL=https://"+front, "ROLLCALL_HTTP_TRUSTED_PROXIES=127.0.0.1")
			cert, key, _ := nettest.WriteCertificate(t, c.folder, time.Now().Add(time.Hour))
			here := strings.NewReplacer("127.0.0.1:8080", strings.TrimPrefix(service, "http://"), "127.0.0.1:8082", upload,
				"verify.example.com {", "https://"+front+" {\n\ttls "+cert+" "+key,
				"listen 80;", "listen "+freeAddress(t)+";", "listen 443", "listen "+front,
				"/etc/letsencrypt/live/verify.example.com/fullchain.pem", cert,
				"/etc/letsencrypt/live/verify.example.com/privkey.pem", key)
			proxy := exec.CommandContext(t.Context(), program, p.start(c, here.Replace(string(site)))...)
			proxy.Env = append(os.Environ(), "HOME="+c.folder, "XDG_DATA_HOME="+c.folder, "XDG_CONFIG_HOME="+c.folder)
			var said strings.Builder
			proxy.Stdout, proxy.Stderr = &said, &said
			b := beside(t, proxy, startHere)
			until(t, func() (bool, string) {
				select {
				case <-b.ended:
					t.Fatalf("%v: %s", b.err, said.String())
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
			effort.Is(t, code, exitDone, errs)
			effort.Has(t, out, "anna@acme-clean.test,valid")
		})
	}
}

// startsCaddy returns the arguments that run Caddy with one site and nothing else.
func startsCaddy(c *cli, site string) []string {
	c.write("Caddyfile", "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"+site)
	return []string{"run", "--adapter", "caddyfile", "--config", filepath.Join(c.folder, "Caddyfile")}
}

// startsNginx returns the arguments that run nginx with one site, in the test's folder.
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
