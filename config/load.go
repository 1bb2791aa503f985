package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// fileBytesMax bounds a configuration file. Guess: a hundred times the largest
// sensible throttle.toml; it keeps a wrong path from being read into memory.
const fileBytesMax = 8 << 20

// Load gives the settings from the defaults, then file (none if ""), then the
// environment, whose lines are in the form of os.Environ. The answer is
// complete and passes Validate.
//
// A fault in the file or the environment is an ErrInvalid with a line for each
// fault. A file that can't be read gives an error that wraps the cause.
func Load(file string, environ []string) (Config, error) {
	c := defaults()
	places := map[string]string{}
	if file != "" {
		data, err := readFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return Config{}, fmt.Errorf("there is no file %s: check the path: %w", file, err)
		}
		if err != nil {
			return Config{}, fmt.Errorf("read %s: %w", file, err)
		}
		if err := decode(file, data, &c, places); err != nil {
			return Config{}, err
		}
	}
	if err := applyEnviron(&c, environ, places); err != nil {
		return Config{}, err
	}
	c.complete()
	if err := locate(c.faults(), places); err != nil {
		return Config{}, err
	}
	return c, nil
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

// decode reads data into target, which holds the defaults, and notes in places
// where each key stands. Every fault has the file's name, line and column.
func decode(file string, data []byte, target any, places map[string]string) error {
	known := keysOf(target)
	if lines := scan(file, data, known, places); lines != nil {
		return &invalid{lines: lines}
	}
	err := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(target)
	if err == nil {
		return nil
	}
	var missing *toml.StrictMissingError
	if errors.As(err, &missing) {
		lines := make([]string, len(missing.Errors))
		for i := range missing.Errors {
			e := &missing.Errors[i]
			lines[i] = place(file, e) + unknownKey(e.Key(), known)
		}
		return &invalid{lines: lines}
	}
	var one *toml.DecodeError
	if errors.As(err, &one) {
		return &invalid{lines: []string{place(file, one) + decodeText(one)}}
	}
	return &invalid{lines: []string{file + ": " + strings.TrimPrefix(err.Error(), "toml: ")}}
}

// place is "file:line:column: ".
func place(file string, e *toml.DecodeError) string {
	line, column := e.Position()
	return fmt.Sprintf("%s:%d:%d: ", file, line, column)
}

// decodeText repeats the decoder's words about one key.
func decodeText(e *toml.DecodeError) string {
	text := strings.TrimPrefix(e.Error(), "toml: ")
	if key := joinKey(e.Key()); key != "" {
		return key + ": " + text
	}
	return text
}

// locate makes one error of faults, or nil of none.
func locate(faults []fault, places map[string]string) error {
	if len(faults) == 0 {
		return nil
	}
	lines := make([]string, len(faults))
	for i, f := range faults {
		lines[i] = f.key + ": " + f.text
		if at, ok := nearest(places, f.key); ok {
			lines[i] = at + ": " + lines[i]
		}
	}
	return &invalid{lines: lines}
}
