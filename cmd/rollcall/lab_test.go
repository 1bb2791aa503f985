package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"rollcall/smtp/smtplab"
)

func TestTheLabShowsItsSheetWhileItRuns(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	lab := c.start("lab", "--json", "--sheet", "127.0.0.1:0", "--network", "127.70.0.0/16", "--events", "10")
	var view labView
	if err := json.Unmarshal([]byte(lab.waitFor("smtp_port")), &view); err != nil {
		t.Fatal(err)
	}
	if len(view.AllowNetworks) != 1 || view.AllowNetworks[0] != "127.70.0.0/16" {
		t.Errorf("allow_networks: got %v, want the network asked for", view.AllowNetworks)
	}
	answer, err := http.Get(view.Sheet + "/sheet")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var sheet smtplab.Sheet
	if err := json.NewDecoder(answer.Body).Decode(&sheet); err != nil || sheet.Receivers == nil {
		t.Errorf("the sheet: got %+v and %v", sheet, err)
	}
	if code := lab.stop(syscall.SIGTERM); code != exitDone {
		t.Errorf("SIGTERM: got code %d, want %d", code, exitDone)
	}
}

func TestWrongFlagsOfTheLab(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for _, x := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no network", []string{"--network", "here"}, exitUsage, `--network "here" is not a network`},
		{"a public network", []string{"--network", "192.0.2.0/24"}, exitUsage, "Network"},
		{"no address of DNS", []string{"--dns", "here"}, exitUsage, `--dns "here" is not an address and port`},
		{"DNS elsewhere", []string{"--dns", "192.0.2.1:53"}, exitUsage, "DNSListen"},
		{"a network that is not here", []string{"--network", "10.77.0.0/16"}, exitFailed, "ip route add local"},
		{"no place for the sheet", []string{"--sheet", "192.0.2.1:1"}, exitFailed, "--sheet"},
	} {
		t.Run(x.name, func(t *testing.T) {
			code, stdout, stderr := c.run(append([]string{"lab"}, x.args...)...)
			if code != x.code || !strings.Contains(stderr, x.want) || stdout != "" {
				t.Errorf("got code %d, %q and %q, want %d and %q", code, stdout, stderr, x.code, x.want)
			}
		})
	}
}

func TestTheLabListsItsPersonalities(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	code, stdout, stderr := c.run("lab", "--list", "--json")
	var views []personalityView
	if err := json.Unmarshal([]byte(stdout), &views); err != nil || code != exitDone || stderr != "" {
		t.Fatalf("got code %d, %v and %q", code, err, stderr)
	}
	all := smtplab.Personalities()
	if len(views) != len(all) {
		t.Fatalf("got %d personalities, want %d", len(views), len(all))
	}
	for i, p := range all {
		if v := views[i]; v.Name != p.Name || v.About == "" || v.Right == "" || v.MXSuffix != p.MXSuffix {
			t.Errorf("%s: got %+v", p.Name, v)
		}
	}
	code, stdout, _ = c.run("lab", "--list")
	if lines := strings.Count(stdout, "\n"); code != exitDone || lines != len(all)+1 {
		t.Errorf("the table has %d lines, want a heading and %d", lines, len(all))
	}
}
