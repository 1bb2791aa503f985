package pagetest_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"rollcall/config/effort"
)

// images makes the pictures of the README again.
var images = flag.Bool("images", false, "write the pictures of docs/images")

// imageBytes bounds each picture.
const imageBytes = 200_000

// TestAsANewcomer does what the README says, with the built program: it starts it, opens the link that it prints,
// uploads the example, and waits for the outcomes.
func TestAsANewcomer(t *testing.T) {
	t.Parallel()
	chromium(t)
	said := startDev(t)
	address := regexp.MustCompile(`API +(http://\S+)`).FindStringSubmatch(said)
	storage := regexp.MustCompile(`upload +(http://\S+)`).FindStringSubmatch(said)
	link := regexp.MustCompile(`(http://\S+)(/link/\S+)`).FindStringSubmatch(said)
	effort.FatalIf(t, address == nil || storage == nil || link == nil, "serve --dev says no address or link: %s", said)
	b := &tab{t: t, root: link[1]}
	b.open(address[1], storage[1])
	b.prefers("light")
	b.do(chromedp.Navigate(b.root + link[2])) // the page of the link signs in by itself
	b.shows("1 000 000 credits")
	b.press("Upload your first file")
	b.shows("UTF-8, with standard CSV quoting.")
	b.shows("its simulated receivers know only addresses that end with .test")
	example, err := filepath.Abs("../../../examples/contacts.csv")
	b.must(err)
	b.choose(example)
	b.shows("It needs at most")
	b.shoot("newcomer-upload")
	b.press("Upload and check")
	b.shows(" of 62 checked")
	b.until(`((done) => done > 15 && [...document.querySelectorAll(".waits li")].reduce((n, li) => n +
		parseInt(li.innerText), done) <= 62)(parseInt(document.querySelector(".answer").innerText))`) // what waits may be some seconds older than what is done
	b.image("verification")
	b.shows("Every address has an outcome.")
	b.shows("Newest results")
	b.goTo("/")
	b.shows("999 942 credits") // as in examples/contacts.expected.csv, 58 were charged
	b.shoot("newcomer-verifications")
	b.prefers("dark")
	b.press("contacts.csv")
	b.shows(" of 62 are valid")
	b.shoot("newcomer-verification-dark")
	b.prefers("light")
	b.press("See results")
	b.shows("this mailbox does not exist")
	b.do(chromedp.Click("(//tr[contains(., 'does not exist')]//a)[1]", chromedp.NodeVisible))
	b.shows("What was asked")
	b.image("address")
	b.press("Sign out")
	b.shows("No account, or lost your password?")
}

// image writes a picture of the window into docs/images if -images is set.
func (b *tab) image(name string) {
	b.t.Helper()
	b.shoot("newcomer-" + name)
	if !*images {
		return
	}
	ctx, end := b.within()
	defer end()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.MkdirAll("../../../docs/images", 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join("../../../docs/images", name+".png"), picture, 0o644)
	}
	b.must(err)
	effort.ErrorIf(b.t, len(picture) > imageBytes,
		"the picture %s has %d bytes, at most %d are allowed", name, len(picture), imageBytes)
}

// startDev builds the program and runs serve --dev in an empty folder. It returns the output up to the link.
func startDev(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	name := filepath.Join(folder, "rollcall")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", name, "rollcall/cmd/rollcall").CombinedOutput(); err != nil {
		t.Fatalf("build: %v %s", err, out)
	}
	command := exec.Command(name, "serve", "--dev")
	command.Dir = folder
	for _, line := range os.Environ() {
		if !strings.HasPrefix(line, "ROLLCALL_") {
			command.Env = append(command.Env, line)
		}
	}
	for _, listener := range []string{"HTTP", "UPLOAD", "ADMIN"} {
		command.Env = append(command.Env, fmt.Sprintf("ROLLCALL_%s_LISTEN=127.0.0.1:%d", listener, freePort(t)))
	}
	command.Env = append(command.Env, "ROLLCALL_RETRY_GREYLIST_WAITS=1s,2500ms", "ROLLCALL_RETRY_CONTROL_WAITS=200ms,400ms",
		"ROLLCALL_RETRY_GIVE_UP_AFTER=8s", "ROLLCALL_LEDGER_DISK_RESERVE=0")
	out, err := command.StdoutPipe()
	var errs effort.Log
	command.Stderr = &errs
	if err == nil {
		err = command.Start()
	}
	effort.OK(t, err)
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		effort.OK(t, command.Wait(), "serve --dev ended with", errs.String())
	})
	said := make(chan string, 1)
	go func() {
		var all strings.Builder
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			all.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), "/link/") {
				said <- all.String()
				break
			}
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	ctx, end := context.WithTimeout(t.Context(), patience)
	defer end()
	select {
	case text := <-said:
		return text
	case <-ctx.Done():
		t.Fatalf("serve --dev printed no link in %s: %s", time.Duration(patience), errs.String())
		return ""
	}
}

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
