package config

import (
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
	at := places{}
	if file != "" {
		data, err := readFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return Config{}, fmt.Errorf("there is no file %s: check the path: %w", file, err)
		}
		if err != nil {
			return Config{}, fmt.Errorf("read %s: %w", file, err)
		}
		if err := invalid(decode(file, data, &c, at)); err != nil {
			return Config{}, err
		}
	}
	if err := applyEnviron(&c, environ, at); err != nil {
		return Config{}, err
	}
	c.complete()
	c.Throttle.places = at.below("throttle")
	if err := invalid(at.locate(c.faults())); err != nil {
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

// decode reads data into target, which holds the defaults, and notes in at where each key
// stands. Every fault has the file's name, line and column.
func decode(file string, data []byte, target any, at places) []Finding {
	known := keysOf(target)
	s := scanner{file: file, known: known, at: at}
	s.scan(data)
	s.found = append(s.found, s.pieces.twice()...)
	documents := s.pieces.cut(data, s.lines)
	if len(s.found) > 0 {
		err := decodePieces(documents, func() any { return new(map[string]any) }, false)
		return append(s.found, decodeFault(file, err, known)...)
	}
	return decodeFault(file, decodePieces(documents, func() any { return target }, true), known)
}

// decodeFault is an error of the decoder, or none.
func decodeFault(file string, err error, known map[string]form) (found []Finding) {
	if err == nil {
		return nil
	}
	var missing *toml.StrictMissingError
	if errors.As(err, &missing) {
		for i := range missing.Errors {
			e := &missing.Errors[i]
			found = append(found, place(file, e).finding(SeverityError, unknownKey(e.Key(), known)))
		}
		return found
	}
	var one *toml.DecodeError
	if errors.As(err, &one) {
		return []Finding{place(file, one).finding(SeverityError, decodeText(one))}
	}
	return []Finding{position{file: file}.finding(SeverityError, strings.TrimPrefix(err.Error(), "toml: "))}
}

// place is where the decoder found a fault.
func place(file string, e *toml.DecodeError) position {
	line, column := e.Position()
	return position{file, line, column}
}

// decodeText repeats the decoder's words about one key.
func decodeText(e *toml.DecodeError) string {
	text := strings.TrimPrefix(e.Error(), "toml: ")
	if key := joinKey(e.Key()); key != "" {
		return key + ": " + text
	}
	return text
}
