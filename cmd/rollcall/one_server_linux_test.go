package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"rollcall/config/effort"
)

// apartLines make a root whose changes nobody else sees: $1 is an empty folder for them, $2 the only folder of this
// machine that is written. Devices are those that programs cannot do without. The rest of the arguments is run there.
const apartLines = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/up" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/up,workdir=$1/work" "$1/root"
root="$1/root" folder="$2"
shift 2
mount -t proc proc "$root/proc"
for place in dev tmp run; do mount -t tmpfs tmpfs "$root/$place"; done
for device in null zero random urandom; do
	touch "$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir -p "$root$folder" "$root/run/systemd/system"
mount --bind "$folder" "$root$folder"
ip link set lo up
exec chroot "$root" "$@"
`

// manager does what systemctl does in the document and in the package's scripts: it runs the ExecStart lines of the
// installed units as they stand there, as their user and in their folder, waits until the node serves, and restarts it.
const manager = `user="setpriv --reuid=rollcall --regid=rollcall --clear-groups"
lines() { sed -n 's/^ExecStart=//p' "/usr/lib/systemd/system/$1.service" | sed 's/%%/%/g'; }
serve() {
	cd /var/lib/rollcall
	$user sh -c "exec $(lines rollcall)" >> /var/lib/rollcall/log 2>&1 &
	echo $! > /tmp/pid
	curl --retry 60 --retry-all-errors --silent --fail --output /dev/null http://127.0.0.1:8081/readyz
}
case "$1 $2" in
"daemon-reload ") ;;
"enable --now") serve ;;
"try-restart rollcall.service") # by the package, at an upgrade
	kill "$(cat /tmp/pid)"
	tail --pid="$(cat /tmp/pid)" -f /dev/null
	grep --quiet draining /var/lib/rollcall/log || exit 1
	serve
	echo "restarted, as $(stat -c %U "/proc/$(cat /tmp/pid)")" ;;
"is-active rollcall") curl --silent --fail --output /dev/null http://127.0.0.1:8081/readyz && echo active ;;
"start rollcall-backup") sleep 1 # a copy's name has the second
	lines rollcall-backup | $user sh -eu ;;
*) exit 1 ;;
esac`

// TestOneServer runs docs/start/one-server.md with the package of this tree, on a copy of this machine whose changes go
// with it. User, folders, configuration, units, backup and the restart by an upgrade are real; a few shell lines stand
// in for systemctl, since nothing is booted. Receivers can't be reached there.
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
	// The shell of a script looks for the program in its folder.
	if err := os.Symlink("/usr/bin/rollcall", filepath.Join(folder, "rollcall")); err != nil {
		t.Fatal(err)
	}
	out := script{document: "start/one-server.md", folder: folder, standIns: map[string]string{"systemctl": manager},
		names: map[string]string{"linux_amd64": "linux_" + runtime.GOARCH},
		inside: []string{"unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-c", apartLines, "sh",
			t.TempDir(), filepath.Dir(folder), "env", "-C", folder}}.run(t)
	all := strings.Join(out, "\n")
	for _, want := range []string{"rollcall.toml is fine", "Valid configuration", "active\n", `"status":"ready"`,
		"rc_", "/link/", "every invariant holds", "restarted, as rollcall\n"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing in\n%s", want, all)
		}
	}
}

// TestUnits: systemd takes the units as they are, but for where the binary is, and finds the node well confined.
func TestUnits(t *testing.T) {
	t.Parallel()
	effort.Children(t)
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("the units are not checked: there is no systemd-analyze")
	}
	name, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	folder, files := t.TempDir(), []string{}
	for file, text := range textsOf(t, []string{"deploy"}, []string{".service", ".timer"}) {
		files = append(files, filepath.Join(folder, file))
		text = strings.ReplaceAll(text, "/usr/bin/rollcall ", name+" ")
		if err := os.WriteFile(files[len(files)-1], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{append([]string{"verify", "--man=no"}, files...),
		{"calendar", "hourly"}, {"security", "--offline=true", "--threshold=20", filepath.Join(folder, "rollcall.service")}} {
		out, err := exec.Command(analyze, args...).CombinedOutput()
		if err != nil || args[0] == "verify" && strings.Contains(string(out), folder) {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}
