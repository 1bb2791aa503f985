package config

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// fileBytesMax bounds a configuration file. Guess: a hundred times a sensible throttle.toml. A file of that size has
// 25,000 tables and is decoded in 3 s.
const fileBytesMax = 2 << 20

// Load returns the settings from the defaults, then file (none if ""), then the environment, whose lines are in the
// form of os.Environ. The answer is complete and passes Validate.
//
// A fault in the file or the environment is an ErrInvalid with a line for each
// fault. A file that can't be read gives an error that wraps the cause.
func Load(file string, environ []string) (Config, error) {
	c, err := Check(file, environ)
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

// Check is Load, but reports faults of all kinds at once. It also returns the settings that it could read, for a
// caller that checks further; a faulty key has its default there.
func Check(file string, environ []string) (c Config, err error) {
	c = defaults()
	at := places{}
	var found []Finding
	if file != "" {
		data, err := readFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return c, fmt.Errorf("there is no file %s: check the path: %w", file, err)
		}
		if err != nil {
			return c, fmt.Errorf("read %s: %w", file, err)
		}
		if c, at, found = decodeAll(file, data, defaults); at == nil {
			return c, invalid(found)
		}
	}
	found = append(found, applyEnviron(&c, environ, at)...)
	c.complete()
	c.Throttle.places = at.below("throttle")
	found = append(found, at.locate(c.faults())...)
	return c, invalid(found)
}

// decodeAll reads data into a value that start makes, and notes in at where each key stands. A faulty setting keeps
// the value that start gave it. If the syntax is broken, so that no other fault can be found, at is nil.
func decodeAll[T any](file string, data []byte, start func() T) (t T, at places, found []Finding) {
	t, at = start(), places{}
	if found = decode(file, data, &t, at); len(found) > 0 {
		t, at = start(), places{} // the decoder stopped halfway
		if more := decode(file, without(data, found), &t, at); len(more) > 0 {
			return start(), nil, found
		}
	}
	return t, at, found
}

// without blanks the lines with findings, and all lines of a faulty table. The other lines keep their numbers.
func without(data []byte, found []Finding) []byte {
	bad := map[int]bool{}
	for _, f := range found {
		bad[f.Line] = true
	}
	lines, inTable := bytes.Split(data, []byte("\n")), false
	for i, line := range lines {
		if bytes.HasPrefix(bytes.TrimSpace(line), []byte("[")) {
			inTable = bad[i+1]
		}
		if inTable || bad[i+1] {
			lines[i] = nil
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

// readFile reads a file of at most fileBytesMax.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err != nil {
		return nil, err
	}
	if len(data) > fileBytesMax {
		return nil, fmt.Errorf("the file is larger than %d bytes: is it the right one?", fileBytesMax)
	}
	return data, nil
}

// decode reads data into target, which holds the defaults, and notes in at where each key
// stands. Every fault has the file's name, line and column.
func decode(file string, data []byte, target any, at places) []Finding {
	s := scanner{file: file, known: keysOf(target), at: at}
	s.scan(data)
	if len(s.found) > 0 { // decodes once more without a target, for faults that only the decoder finds
		return append(s.found, decodeFault(file, toml.Unmarshal(data, new(map[string]any)))...)
	}
	return decodeFault(file, toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(target))
}

func decodeFault(file string, err error) []Finding {
	if err == nil {
		return nil
	}
	at, text := position{file: file}, strings.TrimPrefix(err.Error(), "toml: ")
	if one, ok := errors.AsType[*toml.DecodeError](err); ok {
		at.line, at.column = one.Position()
		if key := joinKey(one.Key()); key != "" {
			text = key + ": " + text
		}
	}
	return []Finding{at.finding(SeverityError, text)}
}

// EnvironPrefix begins the name of every setting in the environment.
const EnvironPrefix = "ROLLCALL_"

// reservedNames are names with our prefix that are read by commands, not settings.
var reservedNames = []string{"ROLLCALL_ADMIN", "ROLLCALL_ADMIN_TOKEN", "ROLLCALL_API", "ROLLCALL_AUTHOR", "ROLLCALL_KEY"}

// EnvironName is the environment's name of a dotted key: smtp.port is ROLLCALL_SMTP_PORT.
func EnvironName(key string) string {
	return EnvironPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// UnknownEnviron returns the names in environ that have our prefix but are no setting. They cause only a warning,
// because platforms set such names themselves (Kubernetes: ROLLCALL_SERVICE_HOST and others for a service called
// rollcall).
func UnknownEnviron(environ []string) []string {
	c := defaults()
	known := map[string]bool{}
	for key := range keysOf(&c) {
		known[EnvironName(key)] = true
	}
	var unknown []string
	for _, line := range environ {
		name, _, _ := strings.Cut(line, "=")
		if strings.HasPrefix(name, EnvironPrefix) && !known[name] && !slices.Contains(reservedNames, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// applyEnviron sets what the environment sets. Commas separate the values of a list. The environment can't set tables
// of single receivers and sources.
func applyEnviron(c *Config, environ []string, at places) (found []Finding) {
	values := map[string]string{}
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		values[name] = value
	}
	leaves("", reflect.ValueOf(c).Elem(), func(key string, v reflect.Value) {
		name := EnvironName(key)
		text, set := values[name]
		if !set || strings.Contains(key, "*") {
			return
		}
		if err := setText(v, strings.TrimSpace(text)); err != nil {
			found = append(found, position{file: name}.finding(SeverityError, fmt.Sprintf("%s: %v", key, err)))
			return
		}
		at[key] = position{file: name}
	})
	return found
}

func setText(v reflect.Value, text string) error {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		v.SetInt(n)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		v.SetFloat(f)
	case reflect.Slice:
		return setList(v, text)
	}
	return nil
}

// setList sets a list from texts with commas between them.
func setList(v reflect.Value, text string) error {
	parts := strings.Split(text, ",")
	if text == "" {
		parts = nil
	}
	list := reflect.MakeSlice(v.Type(), len(parts), len(parts))
	for i, p := range parts {
		if err := setText(list.Index(i), strings.TrimSpace(p)); err != nil {
			return err
		}
	}
	v.Set(list)
	return nil
}

// lookEvery is how often FileWatch.Each reads its files: soon enough for a person who waits for the effect. Reading
// works on every file system and through the symbolic links of container platforms; notifications don't.
const lookEvery = time.Second

// FileWatch notices when the content of files changes. They need not exist. Not safe for concurrent use.
type FileWatch struct {
	files []string
	every time.Duration
	sum   string // of their content at the last look
}

// WatchFiles starts with the files' present content as already seen. An empty name stands for no file.
func WatchFiles(files ...string) *FileWatch {
	w := &FileWatch{files: slices.DeleteFunc(files, func(name string) bool { return name == "" }), every: lookEvery}
	w.sum = w.content()
	return w
}

// Found reports whether there was a file at the last look.
func (w *FileWatch) Found() bool { return w.sum != "" }

// Changed reports whether the content differs from the last look.
func (w *FileWatch) Changed() bool {
	before := w.sum
	w.sum = w.content()
	return w.sum != before
}

// Each looks once a second, and calls do when the content has changed, until ctx ends.
func (w *FileWatch) Each(ctx context.Context, do func()) {
	if len(w.files) == 0 {
		return
	}
	ticker := time.Tick(w.every)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker:
		}
		if w.Changed() {
			do()
		}
	}
}

// content returns a hash of each file's content: "" when there is no file, and the error when it can't be read.
func (w *FileWatch) content() (sums string) {
	for _, file := range w.files {
		text, err := readFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			sums += err.Error()
		default:
			sums += fmt.Sprintf("%x", sha256.Sum256(text))
		}
	}
	return sums
}
