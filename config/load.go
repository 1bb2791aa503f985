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

// Load returns the settings from the defaults, then file (none if ""), then the
// environment, whose lines are in the form of os.Environ. The answer is
// complete and passes Validate.
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

// Check is Load that gives all faults at once, whatever their kind, and with them what could be read: for who looks
// further. A key that is at fault has its default meanwhile.
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
		if found = decode(file, data, &c, at); len(found) > 0 {
			c, at = defaults(), places{} // the decoder has stopped somewhere
			if more := decode(file, without(data, found), &c, at); len(more) > 0 {
				return defaults(), invalid(found) // its syntax is broken: nothing else can be told
			}
		}
	}
	found = append(found, applyEnviron(&c, environ, at)...)
	c.complete()
	c.Throttle.places = at.below("throttle")
	found = append(found, at.locate(c.faults())...)
	return c, invalid(found)
}

// without leaves out the lines of findings, of a table at fault all its lines. The others keep their numbers.
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
