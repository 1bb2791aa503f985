package browser_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// firefox is a Firefox without a window, driven by its own protocol, Marionette.
type firefox struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	last int
}

// newFirefox starts one, if there is one. It reaches nothing but this machine.
func newFirefox(t *testing.T) *firefox {
	t.Helper()
	chromium(t) // the tests in a browser are asked for
	path, err := exec.LookPath("firefox-esr")
	if err != nil {
		t.Skip("there is no Firefox here (Debian's package is firefox-esr): its look at the pages is skipped")
	}
	port, profile := freePort(t), t.TempDir()
	prefs := fmt.Sprintf("user_pref('marionette.port', %d);user_pref('network.proxy.type', 1);"+
		"user_pref('network.proxy.http', '127.0.0.1');user_pref('network.proxy.http_port', 9);"+
		"user_pref('network.proxy.ssl', '127.0.0.1');user_pref('network.proxy.ssl_port', 9);", port)
	if err := os.WriteFile(filepath.Join(profile, "user.js"), []byte(prefs), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), path, "--headless", "--marionette", "--no-remote",
		"--remote-allow-system-access", "--width", "1280", "--height", "900", "--profile", profile)
	command.Env = append(os.Environ(), "HOME="+profile)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	f := &firefox{t: t}
	if !eventually(func() bool {
		f.conn, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		return err == nil
	}) {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.conn.Close() })
	f.in = bufio.NewReader(f.conn)
	f.read() // its greeting
	f.call("WebDriver:NewSession", map[string]any{})
	return f
}

// read reads one message, which begins with its length.
func (f *firefox) read() (text []byte) {
	f.t.Helper()
	length, err := f.in.ReadString(':')
	size := 0
	if _, failed := fmt.Sscanf(length, "%d:", &size); err == nil {
		err = failed
	}
	if text = make([]byte, size); err == nil {
		_, err = io.ReadFull(f.in, text)
	}
	if err != nil {
		f.t.Fatalf("Firefox: %v", err)
	}
	return text
}

// call has it do something, and gives what it answers.
func (f *firefox) call(name string, arguments any) (value any) {
	f.t.Helper()
	f.last++
	sent, err := json.Marshal([]any{0, f.last, name, arguments})
	if err == nil {
		_, err = fmt.Fprintf(f.conn, "%d:%s", len(sent), sent)
	}
	var answer [4]any
	if err == nil {
		err = json.Unmarshal(f.read(), &answer)
	}
	if err != nil || answer[2] != nil {
		f.t.Fatalf("Firefox: %s: %v %v", name, err, answer[2])
	}
	return answer[3]
}

// script runs one in the page, or in the browser around it, and gives the text that it returns.
func (f *firefox) script(context, text string) string {
	f.t.Helper()
	f.call("Marionette:SetContext", map[string]string{"value": context})
	found := f.call("WebDriver:ExecuteScript", map[string]any{"script": text, "args": []any{}})
	f.call("Marionette:SetContext", map[string]string{"value": "content"})
	return fmt.Sprint(found.(map[string]any)["value"])
}

// TestPagesInFirefox: no page of the table is wider than its window, and its own scripts run.
func TestPagesInFirefox(t *testing.T) {
	t.Parallel()
	f := newFirefox(t)
	n := theNode(t)
	f.call("WebDriver:Navigate", map[string]string{"url": n.url + "/sign-in"})
	for _, s := range table {
		if s.status != 0 || s.role == "" {
			continue
		}
		p := n.workspace(t, "acme", 1000)
		f.call("WebDriver:AddCookie", map[string]any{"cookie": map[string]any{"name": "__Host-rollcall", "path": "/",
			"value": p.join(s.role).token, "secure": true, "httpOnly": true}})
		f.call("WebDriver:Navigate", map[string]string{"url": n.url + s.path(p)})
		for _, width := range []int{1280, 640, 390} { // by its zoom: a window can't be narrower than 450
			f.script("chrome", fmt.Sprintf("ZoomManager.zoom = window.innerWidth / %d", width))
			if found := f.script("content", `
				const wide = document.documentElement.scrollWidth - innerWidth, has = (it) => document.querySelector(it);
				return (has(".who") ? "" : "nobody is signed in ") + (wide > 0 ? "wider than " + innerWidth : "") +
					(has("[data-copy]") && !has("[data-copy] + .plain") ? "no button that copies" : "")`); found != "" {
				t.Errorf("%s at %d px: %s", s.name, width, found)
			}
		}
	}
}
