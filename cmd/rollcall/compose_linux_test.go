package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	composecli "github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"rollcall/config"
	"rollcall/config/effort"
)

// readCompose reads deploy/compose.yaml as `docker compose config` does.
func readCompose(t *testing.T) *types.Project {
	t.Helper()
	options, err := composecli.NewProjectOptions([]string{filepath.Join(HouseRoot, "deploy", "compose.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// TestComposeFile: the file is one of Compose, images are pinned, ports are published on this machine only, and each
// node's settings are valid.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	for name, s := range readCompose(t).Services {
		_, version, _ := strings.Cut(filepath.Base(s.Image), ":")
		if s.Image != "rollcall" && (version == "" || version == "latest") {
			t.Errorf("%s: the image %s has no version", name, s.Image)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is published at %q", name, p.Published, p.HostIP)
			}
		}
		if strings.HasPrefix(name, "node-") {
			if _, err := config.Load("", environOf(s)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// environOf gives the environment of a service, one NAME=value each.
func environOf(s types.ServiceConfig) (environ []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Environment)) {
		if value := s.Environment[name]; value != nil {
			environ = append(environ, name+"="+*value)
		}
	}
	return environ
}

// TestComposeRuns starts what compose.yaml starts, as processes on a network of their own: database, migration, rights,
// lab, nodes, the verification, and Prometheus. Grafana and the image are not here.
func TestComposeRuns(t *testing.T) {
	if !effort.Long() {
		t.Skip("starts a database and three nodes: only with -long")
	}
	needTourTools(t)
	folder, project := tourFolder(t), readCompose(t)
	examples, err := filepath.Abs(filepath.Join(HouseRoot, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	rights, err := filepath.Abs(filepath.Join(HouseRoot, "deploy", "rights.sql"))
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("@db:", "@127.0.0.1:", "/examples/", examples+"/", "/rights.sql", rights)
	// lines runs a service's command with its environment; what is in quotes stays whole.
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
		configuration, err := filepath.Abs(filepath.Join(HouseRoot, "deploy", "prometheus", "prometheus.yml"))
		if err != nil {
			t.Fatal(err)
		}
		text += "prometheus --config.file=" + configuration + " --storage.tsdb.path=prometheus > prometheus.log 2>&1 &\n" +
			"until curl -s '127.0.0.1:9090/api/v1/query?query=count(up==1)' | grep -q '\"3\"'; do sleep 1; done\n"
	}
	for name, body := range map[string]string{"run.sh": text, "users.sql": project.Configs["users"].Content} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
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
	if said := string(out); strings.Count(said, "serving") != 3 || !strings.Contains(said, "every invariant holds") ||
		strings.Count(said, ",valid,") < 10 {
		t.Errorf("got\n%s", said)
	}
}
