package pagetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"rollcall/config/effort"
)

// required says that the browser is asked for, as make browser and CI do. Nothing of what it needs may be missing then.
func required() bool { return os.Getenv("ROLLCALL_REQUIRE_BROWSER") == "1" }

// notAsked is said where it is not: a browser beside all other tests takes what nodes under test need.
const notAsked = "the tests of the pages in a browser are skipped: run make browser"

// TestMain ends the browser that all tests share, and says once that it is not asked for.
func TestMain(m *testing.M) {
	effort.AtOnce(3)
	if !required() {
		fmt.Fprintln(os.Stderr, notAsked)
	}
	code := m.Run()
	if shared.end != nil {
		shared.end()
	}
	if one.stop != nil {
		one.stop()
	}
	os.Exit(code)
}

// program finds the browser.
func program() (string, error) {
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no browser: install chromium-headless-shell")
}

// shared is the one browser of this run.
var shared struct {
	once sync.Once
	ctx  context.Context
	end  func()
	err  error
}

// chromium starts the browser once. It skips the test unless the browser is asked for.
func chromium(t testing.TB) context.Context {
	t.Helper()
	effort.Children(t)
	if !required() {
		t.Skip(notAsked)
	}
	path := effort.Must(program())(t)
	shared.once.Do(func() {
		o := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1280, 900))
		if os.Geteuid() == 0 {
			o = append(o, chromedp.NoSandbox) // it refuses to have one as root
		}
		allocated, stop := chromedp.NewExecAllocator(context.Background(), o...)
		ctx, cancel := chromedp.NewContext(allocated)
		shared.ctx, shared.end = ctx, func() { cancel(); stop() }
		shared.err = chromedp.Do(ctx)
	})
	effort.OK(t, shared.err, "start", path)
	return shared.ctx
}

// module gives a file of a node package.
func module(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("npm", "node_modules", name))
	if err == nil {
		_, err = os.Stat(path)
	}
	effort.FatalIf(t, err != nil, "%v", name+" is missing: run npm ci in http/dashboard/pagetest/npm")
	return path
}
