package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rollcall/config/effort"
)

// TestLintTellsEachBadRow: text output shows ten bad rows, JSON all, and a clean copy never replaces the input.
func TestLintTellsEachBadRow(t *testing.T) {
	t.Parallel()
	d, name := console{t: t, toFile: true}, filepath.Join(t.TempDir(), "list.csv")
	text := "email\nanna@a.test\n" + strings.Repeat("Bert <bert@b.test>\n", 9) + "\nnobody\n"
	effort.OK(t, os.WriteFile(name, []byte(text), 0o600))
	out, err := d.said("lint", name)
	holds(t, out,
		`row 3, "Bert <bert@b.test>": This row has a name beside the address. Keep the address only: bert@b.test`,
		"row 12: This row is blank. Delete it.\n", "and 1 more: rollcall lint --json "+name+"\n",
		name+": 1 address to send, 11 rows with a defect\n")
	effort.ErrorIf(t, err == nil || isUsage(err), "bad rows: got %v, want a failure", err)
	out, err = d.said("lint", "--json", name)
	var found lintView
	effort.ErrorIf(t, json.Unmarshal([]byte(out), &found) != nil || err == nil || len(found.Defects) != 11 ||
		found.Addresses != 1 || found.Defects[0].Kind != "name_beside_address" || found.Defects[10].Text != "nobody",
		"got %v and %s", err, out)
	clean := strings.TrimSuffix(name, ".csv") + ".clean.csv"
	effort.Has(t, effort.Must(d.said("lint", "--fix", name))(t), clean+" has 10 addresses: 9 corrected, 2 left out\n")
	effort.Is(t, string(effort.Must(os.ReadFile(clean))(t)), "anna@a.test\n"+strings.Repeat("bert@b.test\n", 9))
	for _, args := range [][]string{{}, {"--out", name, "--force"}} { // the copy exists already; the copy is the input
		d.refused("", append([]string{"lint", "--fix", name}, args...)...)
	}
	effort.Is(t, string(effort.Must(os.ReadFile(name))(t)), text, "the input")
	d.stdin = "email\nanna@a.test\n"
	effort.Is(t, d.must("lint", "-"), "stdin.csv: 1 address to send, no defects\n", "standard input")
}

// TestDataShowsEachList: data names the lists that the program contains.
func TestDataShowsEachList(t *testing.T) {
	t.Parallel()
	holds(t, (&console{t: t, toFile: true}).must("data"), "disposable", "CC0-1.0")
}

// TestWhoDoesTheWork: a service if one is named, otherwise this machine; --local always chooses this machine.
func TestWhoDoesTheWork(t *testing.T) {
	t.Parallel()
	const api = "http://127.0.0.1:8080"
	named := environment{"ROLLCALL_API=" + api, "ROLLCALL_KEY=k"}
	for _, x := range []struct {
		f    verifyFlags
		e    environment
		want string
		ok   bool
	}{
		{verifyFlags{}, named, api, true}, {verifyFlags{local: true}, named, "", true},
		{verifyFlags{lab: true}, named, "", true},
		{verifyFlags{config: "c"}, named, "", true}, {verifyFlags{}, nil, "", true},
		{verifyFlags{api: api, local: true}, named, api, false},
		{verifyFlags{lab: true, local: true}, nil, "", false},
		{verifyFlags{}, environment{"ROLLCALL_API=" + api}, api, false},
	} {
		f := x.f
		err := f.chooseService(x.e)
		effort.ErrorIf(t, (err == nil) != x.ok || f.api != x.want, "%+v, %v: got %q, %v", x.f, x.e, f.api, err)
	}
}

// TestAListIsVerifiedAndJoined: a list that no API accepts comes from standard input, and its rows get results and
// flags beside them.
func TestAListIsVerifiedAndJoined(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.environ = hurried
	bad := c.write("bad.csv", "email\na@one-clean.test\n\nb@one-clean.test\n")
	holds(t, c.fails(exitFailed, "verify", "--lab", bad), "rollcall: row 3: This row is blank. Delete it.\n")
	command := c.command(t.Context(), "verify", "--lab", "-", "--fix", "--join", "--quiet")
	command.Stdin = strings.NewReader("name;E-Mail\nJ\xfcrgen;info@one-clean.test\nNobody;\n" +
		"Bert;<bert@one-clean.test>\nX;x\n")
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	var got [][]string
	for line := range strings.Lines(out.String()) {
		cells := strings.Split(strings.TrimSpace(line), ",")
		got = append(got, slices.Concat(cells[:3], cells[4:5]))
	}
	want := [][]string{{"name", "E-Mail", "result", "role"}, {"Jürgen", "info@one-clean.test", "valid", "yes"},
		{"Nobody", "", "", ""}, {"Bert", "<bert@one-clean.test>", "valid", ""}, {"X", "x", "", ""}}
	if err != nil || errs.Len() > 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %q and %s", err, got, fmt.Sprint(errs.String()))
	}
}
