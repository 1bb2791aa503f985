package main

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const platforms = "linux/amd64 linux/arm64 darwin/amd64 darwin/arm64"

type release struct {
	root    string // of the source
	out     string // folder of the results
	version string // such as 0.1.0
	commit  string
	date    time.Time // of the commit
}

// built is the result for one platform.
type built struct {
	goos, goarch string
	binary       []byte
}

func main() {
	out := flag.String("out", "dist", "the folder for the release; files of the same names are replaced")
	only := flag.String("platforms", platforms, "what to build for, separated by spaces")
	flag.Parse()
	r, err := open(".", *out)
	if err == nil {
		err = r.writeAll(strings.Fields(*only))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// open returns the version of the source at root, by versionAt, and its commit.
func open(root, out string) (r release, err error) {
	ask := func(args ...string) (text string) {
		if err == nil {
			var answer []byte
			answer, err = exec.Command("git", append([]string{"-C", root}, args...)...).Output()
			text = strings.TrimSpace(string(answer))
		}
		return text
	}
	r = release{root: root, out: out, commit: ask("rev-parse", "HEAD")}
	tags := ask("tag", "--points-at", "HEAD", "--sort=-version:refname", "v[0-9]*")
	changed := ask("status", "--porcelain", "--untracked-files=no")
	seconds, unread := strconv.ParseInt(ask("show", "-s", "--format=%ct", "HEAD"), 10, 64)
	if err = cmp.Or(err, unread); err != nil {
		return r, fmt.Errorf("ask git for the commit (build a release in a clone): %w", err)
	}
	changes, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return r, err
	}
	r.date = time.Unix(seconds, 0).UTC()
	r.version, err = versionAt(tags, string(changes), changed != "")
	return r, err
}

// heading matches the heading of a version in the changelog.
var heading = regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+\S*)`)

// versionAt returns the version of a commit: its highest tag such as v0.1.0, or without a tag the first heading of
// the changelog. If files differ from the commit, the version shows that, because no other machine can build it.
func versionAt(tags, changelog string, changed bool) (version string, err error) {
	tag, _, _ := strings.Cut(tags, "\n")
	if version = strings.TrimPrefix(tag, "v"); version == "" {
		found := heading.FindStringSubmatch(changelog)
		if found == nil {
			return "", errors.New("CHANGELOG.md has no heading such as: ## 0.1.0")
		}
		version = found[1]
	}
	if changed {
		version += "-dirty"
	}
	return version, nil
}

// writeAll builds for the platforms and writes all files.
func (r release) writeAll(platforms []string) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	var forLinux []built
	for _, platform := range platforms {
		b, err := r.buildFor(platform)
		if err != nil {
			return err
		}
		if err := r.writePlatform(b); err != nil {
			return err
		}
		if b.goos == "linux" {
			forLinux = append(forLinux, b)
		}
	}
	if len(forLinux) > 0 {
		if err := r.writeImage(forLinux); err != nil {
			return err
		}
	}
	return r.writeSums()
}

// buildFor compiles the binary for a platform such as linux/amd64: static, without symbols, without paths.
func (r release) buildFor(platform string) (b built, err error) {
	b.goos, b.goarch, _ = strings.Cut(platform, "/")
	into, err := os.CreateTemp("", "rollcall")
	if err != nil {
		return b, err
	}
	defer os.Remove(into.Name())
	_ = into.Close()
	stamp := "-s -w -buildid="
	for _, is := range []string{"version=" + r.version, "commit=" + r.commit, "date=" + r.date.Format(time.RFC3339)} {
		stamp += " -X rollcall/cmd/rollcall/node." + is
	}
	compile := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", stamp, "-o", into.Name(),
		"./cmd/rollcall")
	compile.Dir, compile.Stderr = r.root, os.Stderr
	compile.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOOS="+b.goos, "GOARCH="+b.goarch,
		"GOAMD64=v1", "GOARM64=v8.0")
	if err := compile.Run(); err != nil {
		return b, fmt.Errorf("build for %s: %w", platform, err)
	}
	b.binary, err = os.ReadFile(into.Name())
	return b, err
}

// writePlatform writes the files of one platform: archive, and for Linux the Debian package.
func (r release) writePlatform(b built) error {
	name := fmt.Sprintf("rollcall_%s_%s_%s", r.version, b.goos, b.goarch)
	content := []entry{{name: "rollcall", mode: 0o755, body: b.binary}}
	for _, file := range []string{"LICENSE", "NOTICE", "README.md"} {
		text, err := os.ReadFile(filepath.Join(r.root, file))
		if err != nil {
			return err
		}
		content = append(content, entry{name: file, mode: 0o644, body: text})
	}
	archive, err := makeTarGz(content, r.date)
	if err != nil {
		return err
	}
	if err := r.writeFile(name+".tar.gz", archive); err != nil {
		return err
	}
	if b.goos != "linux" {
		return nil
	}
	deb, err := r.makeDebian(b)
	if err != nil {
		return err
	}
	return r.writeFile(name+".deb", deb)
}

func (r release) writeFile(name string, body []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), body, 0o644)
}

// writeSums writes the SHA256SUMS of the folder, for `sha256sum --check`.
func (r release) writeSums() error {
	files, err := filepath.Glob(filepath.Join(r.out, "rollcall_"+r.version+"_*"))
	if err != nil {
		return err
	}
	slices.Sort(files)
	sums := ""
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		sums += fmt.Sprintf("%x  %s\n", sha256.Sum256(body), filepath.Base(file))
	}
	return r.writeFile("SHA256SUMS", []byte(sums))
}
