package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/http/api"
)

// TestClientsOfThreeLanguages runs the Go client and the samples in Python and JavaScript against a node: the same file
// gives the same results, and a bad one says what is wrong with it.
func TestClientsOfThreeLanguages(t *testing.T) {
	t.Parallel()
	c, service, _ := newCustomerCLI(t)
	const list = "email\nanna.smith@acme-clean.test\nghost@acme-clean.test\n"
	c.write("list.csv", list)
	c.write("bad.csv", "email\nanna@@acme-clean.test\n")
	expected := map[string]string{"anna.smith@acme-clean.test": "valid", "ghost@acme-clean.test": "invalid"}
	t.Run("go", func(t *testing.T) {
		own := api.NewClient(service, environment(c.environ).value("ROLLCALL_KEY"))
		done, err := own.Verify(t.Context(), api.File{Content: strings.NewReader(list), Size: int64(len(list))})
		effort.FatalIf(t, err != nil || done.Status != "completed", "got %+v and %v", done, err)
		found := 0
		for r, err := range own.Results(t.Context(), done.ID) {
			if found++; err != nil || r.Outcome != expected[r.Email] || r.CheckedAt.IsZero() {
				t.Errorf("got %+v and %v", r, err)
			}
		}
		for range own.Results(t.Context(), done.ID) {
			break // who wants no more is given no more
		}
		if balance, err := own.Credits(t.Context()); found != 2 || err != nil || balance.Credits != devCredits-2 {
			t.Errorf("got %d results, %+v and %v", found, balance, err)
		}
		effort.Denied(api.NewClient(service, "rc_wrong").Credits(t.Context()))(t, api.ErrRefused, "a wrong key")
	})
	for _, command := range [][]string{{"python3", "verify.py"}, {"node", "verify.mjs"}} {
		t.Run(command[0], func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(command[0])
			if err != nil {
				t.Skip("not run: there is no " + command[0])
			}
			run := func(file string) (string, error) {
				one := c.command(t.Context())
				one.Path, one.Args = program, []string{program, example(t, command[1]), filepath.Join(c.folder, file)}
				out, err := one.CombinedOutput()
				return string(out), err
			}
			out, err := run("list.csv")
			got := outcomes(out)
			effort.ErrorIf(t, err != nil || len(got) != len(expected) || got["ghost@acme-clean.test"] != "invalid" ||
				got["anna.smith@acme-clean.test"] != "valid", "got %v and\n%s", err, out)
			if out, err := run("bad.csv"); err == nil || !strings.Contains(out, "malformed") {
				t.Errorf("a bad file: got %v and\n%s", err, out)
			}
		})
	}
}
