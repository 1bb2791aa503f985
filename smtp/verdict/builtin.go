package verdict

import (
	"embed"
	"fmt"
	"os"
	"path"
	"sync"
)

//go:embed rules/*.toml
var builtinFiles embed.FS

// Builtin returns the program's own rules.
func Builtin() *Rules { return builtin() }

var builtin = sync.OnceValue(func() *Rules {
	files, found := readBuiltin()
	if err := found.err(); err != nil { // a fault of this package, found by every test
		panic("verdict: " + err.Error())
	}
	return compile(files)
})

func readBuiltin() ([]*ruleFile, faults) {
	entries, err := builtinFiles.ReadDir("rules")
	if err != nil {
		return nil, faults{err.Error()}
	}
	var files []*ruleFile
	var all faults
	for _, entry := range entries {
		data, err := builtinFiles.ReadFile(path.Join("rules", entry.Name()))
		if err != nil {
			return nil, faults{err.Error()}
		}
		f, found := readFile(entry.Name(), data, false)
		files, all = append(files, f), append(all, found...)
	}
	return files, append(all, tooMany(files)...)
}

func tooMany(files []*ruleFile) faults {
	n := 0
	for _, f := range files {
		n += len(f.rules)
		for _, r := range f.rules {
			n += min(1, len(r.with))
		}
	}
	if n > rulesMax {
		return faults{fmt.Sprintf("there are %d rules, but %d at most: take some out", n, rulesMax)}
	}
	return nil
}

// fileBytesMax bounds an operator's file. Guess: five times all built-in rules.
const fileBytesMax = 4 << 20

// Load returns the built-in rules preceded by those of an operator's file. The name of the file is used in errors.
// An ErrFaults has a line for each fault.
func Load(name string, data []byte) (*Rules, error) {
	if len(data) > fileBytesMax {
		return nil, fmt.Errorf("%w:\n%s:1: the file is larger than %d bytes: is it the right one?", ErrFaults, name,
			fileBytesMax)
	}
	own, found := readFile(name, data, true)
	if len(found) > 0 {
		return nil, found.err()
	}
	files, _ := readBuiltin()
	files = append(files, own)
	if found = tooMany(files); len(found) > 0 {
		return nil, found.err()
	}
	s := compile(files)
	if err := s.check(true).err(); err != nil {
		return nil, err
	}
	s.changes = s.changesTo(Builtin())
	return s, nil
}

// LoadFile loads the rules of a file; see Load.
func LoadFile(name string) (*Rules, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > fileBytesMax {
		return Load(name, make([]byte, fileBytesMax+1))
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return Load(name, data)
}
