package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollcall/config/effort"
)

// sample is a release whose binary is a small static program that prints that it runs.
func sample(t *testing.T) (release, built) {
	t.Helper()
	folder := t.TempDir()
	source, binary := filepath.Join(folder, "main.go"), filepath.Join(folder, "rollcall")
	program := "package main\n\nimport \"os\"\n\nfunc main() { os.Stdout.WriteString(\"it runs\") }\n"
	effort.OK(t, os.WriteFile(source, []byte(program), 0o600))
	compile := exec.Command("go", "build", "-o", binary, source)
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := compile.CombinedOutput()
	effort.FatalIf(t, err != nil, "%v: %s", err, out)
	b := built{goos: runtime.GOOS, goarch: runtime.GOARCH, binary: effort.Must(os.ReadFile(binary))(t)}
	return release{root: "../..", out: t.TempDir(), version: "1.2.3-rc1", commit: "abc",
		date: time.Unix(1_790_000_000, 0).UTC()}, b
}

// output runs a program and returns its output.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	effort.OK(t, err, name, args, out)
	return string(out)
}

// TestDebianPackage installs the package into a root of its own, where dpkg runs its scripts, and then removes it.
func TestDebianPackage(t *testing.T) {
	t.Parallel()
	effort.Children(t)
	for _, program := range []string{"dpkg", "systemd-sysusers", "systemd-tmpfiles"} {
		if _, err := exec.LookPath(program); err != nil || os.Geteuid() != 0 {
			t.Skip("the package is not installed: this needs root, dpkg and systemd's programs")
		}
	}
	r, b := sample(t)
	deb, err := r.makeDebian(b)
	if err == nil {
		err = r.writeFile("rollcall.deb", deb)
	}
	effort.OK(t, err)
	root := t.TempDir()
	for _, folder := range []string{"info", "updates", "triggers"} {
		effort.OK(t, os.MkdirAll(filepath.Join(root, "var/lib/dpkg", folder), 0o755))
	}
	effort.OK(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644))
	dpkg := []string{"--root=" + root, "--force-script-chrootless", "--force-depends", "--log=" + root + "/log"}
	output(t, "dpkg", append(dpkg, "--install", filepath.Join(r.out, "rollcall.deb"))...)
	effort.Is(t, output(t, filepath.Join(root, "usr/bin/rollcall")), "it runs", "the installed binary says")
	effort.Is(t, output(t, "dpkg-query", "--admindir="+root+"/var/lib/dpkg", "-W"), "rollcall\t1.2.3~rc1\n", "dpkg knows")
	users, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	effort.ErrorIf(t, err != nil || !strings.Contains(string(users), "rollcall:x:"),
		"no user was made: %v, %s", err, users)
	output(t, "dpkg", append(dpkg, "--remove", "rollcall")...)
	for path, mode := range map[string]os.FileMode{
		"etc/rollcall/rollcall.toml": 0o640, "var/lib/rollcall": 0o700, "var/backups/rollcall": 0o700,
	} {
		info, err := os.Stat(filepath.Join(root, path)) // also after the removal: the operator owns these files
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want mode %o", path, info, err, mode)
			continue
		}
		owner := info.Sys().(*syscall.Stat_t)
		effort.ErrorIf(t, owner.Uid == 0 && info.IsDir(), "%s belongs to root", path)
	}
	effort.Denied(os.Stat(filepath.Join(root, "usr/bin/rollcall")))(t, os.ErrNotExist, "the binary is still there")
}

// TestImage reads the image as a runtime does, by digests from index.json to the layer. It unpacks the layer, and
// runs the entry point there as the image's user.
func TestImage(t *testing.T) {
	t.Parallel()
	effort.Children(t)
	r, b := sample(t)
	archive := effort.Must(r.makeImage([]built{b}))(t)
	files := map[string][]byte{}
	for name, body := range unpacked(t, archive) {
		files[name] = body
		sum, is := strings.CutPrefix(name, "blobs/sha256/")
		effort.ErrorIf(t, is && sum != "" && sum != fmt.Sprintf("%x", sha256.Sum256(body)), "%s has other bytes", name)
	}
	read := func(d descriptor, into any) []byte {
		body := files["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
		effort.FatalIf(t, len(body) != d.Size || into != nil && json.Unmarshal(body, into) != nil,
			"%+v: got %d bytes", d, len(body))
		return body
	}
	var top, index struct{ Manifests []descriptor }
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	var image struct {
		OS, Architecture string
		Config           struct {
			User                   string
			Entrypoint, Cmd, Env   []string
			StopSignal, WorkingDir string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	effort.FatalIf(t, json.Unmarshal(files["index.json"], &top) != nil || len(top.Manifests) != 1 ||
		string(files["oci-layout"]) != `{"imageLayoutVersion":"1.0.0"}`, "no layout: %s", files["index.json"])
	read(top.Manifests[0], &index)
	read(index.Manifests[0], &manifest)
	read(manifest.Config, &image)
	layer := unzipped(t, read(manifest.Layers[0], nil))
	got := fmt.Sprintf("sha256:%x", sha256.Sum256(layer))
	if ids := image.RootFS.DiffIDs; len(ids) != 1 || ids[0] != got {
		t.Errorf("the layer is %s, the configuration has %v", got, image.RootFS.DiffIDs)
	}
	effort.ErrorIf(t, image.OS != b.goos || image.Architecture != b.goarch || image.Config.User != "65532:65532" ||
		image.Config.StopSignal != "SIGTERM", "got %+v", image)
	if os.Geteuid() != 0 {
		t.Skip("the entry point is not run: this needs root")
	}
	root := t.TempDir()
	unpack := exec.Command("tar", "--extract", "--same-permissions", "--directory", root)
	unpack.Stdin = bytes.NewReader(layer)
	out, err := unpack.CombinedOutput()
	effort.FatalIf(t, err != nil, "%v: %s", err, out)
	effort.OK(t, os.Chmod(root, 0o755))
	run := &exec.Cmd{Path: image.Config.Entrypoint[0], Args: image.Config.Entrypoint, Env: image.Config.Env,
		Dir: image.Config.WorkingDir, SysProcAttr: &syscall.SysProcAttr{Chroot: root,
			Credential: &syscall.Credential{Uid: nobody, Gid: nobody, NoSetGroups: true}}}
	effort.Is(t, string(effort.Must(run.CombinedOutput())(t)), "it runs", "the entry point")
}

// unpacked reads a tar archive.
func unpacked(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err == nil {
			files[h.Name], err = io.ReadAll(r)
		}
		effort.OK(t, err)
	}
}

func unzipped(t *testing.T, text []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(text))
	if err == nil {
		text, err = io.ReadAll(r)
	}
	effort.OK(t, err)
	return text
}

// TestVersion: the version comes from a tag of the commit, or else from the changelog of this repository, whose first
// heading has the newest version.
func TestVersion(t *testing.T) {
	t.Parallel()
	changes := effort.Must(os.ReadFile("../../CHANGELOG.md"))(t)
	for _, c := range []struct {
		tags, changes string
		changed       bool
		want          string
	}{
		{"", string(changes), false, "0.1.0"}, {"", string(changes), true, "0.1.0-dirty"},
		{"v0.2.0\nv0.2.0-rc1", string(changes), false, "0.2.0"},
		{"", "## 1.0.0-rc1 (soon)\n\n## 0.9.1\n", false, "1.0.0-rc1"},
		{"", "# Changelog\n", false, ""},
	} {
		got, err := versionAt(c.tags, c.changes, c.changed)
		effort.Is(t, got, c.want, c.tags, err)
		effort.Is(t, err != nil, c.want == "", c.tags)
	}
}

// TestTwoBuilds builds one platform in two folders: the bytes are the same, and the binary states its version.
func TestTwoBuilds(t *testing.T) {
	if !effort.Long() {
		t.Skip("compiles everything without paths: only with -long")
	}
	first := effort.Must(open("../..", t.TempDir()))(t)
	second := first
	second.root, second.out = t.TempDir(), t.TempDir()
	output(t, "sh", "-c", fmt.Sprintf("cd ../.. && git ls-files -z --cached --others --exclude-standard | "+
		"xargs -0 cp --parents -t %q", second.root))
	platform := runtime.GOOS + "/" + runtime.GOARCH
	for _, r := range []release{first, second} {
		effort.OK(t, r.writeAll([]string{platform}))
		output(t, "sh", "-c", fmt.Sprintf("cd %q && sha256sum --check SHA256SUMS && tar -xzf *.tar.gz", r.out))
	}
	one, err := os.ReadFile(filepath.Join(first.out, "SHA256SUMS"))
	two, failed := os.ReadFile(filepath.Join(second.out, "SHA256SUMS"))
	effort.ErrorIf(t, err != nil || failed != nil || !bytes.Equal(one, two),
		"two builds differ: %v, %v\n%s%s", err, failed, one, two)
	said := output(t, filepath.Join(first.out, "rollcall"), "version", "--json")
	for _, want := range []string{first.version, first.commit, first.date.Format(time.RFC3339), runtime.Version()} {
		effort.Has(t, said, want, "the binary says")
	}
	if info, err := os.Stat(filepath.Join(first.out, "rollcall")); err == nil {
		t.Logf("the binary has %.1f MB", float64(info.Size())/1e6)
	}
}
