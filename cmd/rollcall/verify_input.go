package main

import (
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/term"
	"rollcall/smtp"
)

// input is the file to verify, open for reading.
type input struct {
	*os.File
	name string
	size int64
	sum  [sha256.Size]byte // of its bytes
}

// openInput opens a file and reads it once for its checksum.
func openInput(name string) (*input, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s: check the path", name)
	}
	if err != nil {
		return nil, fmt.Errorf("open the file: %w", err)
	}
	in := &input{File: f, name: name}
	if err := in.measure(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return in, nil
}

func (in *input) measure() error {
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("look at the file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file: give a CSV file with one address in each line", in.name)
	}
	sum := sha256.New()
	if in.size, err = io.Copy(sum, in.File); err != nil {
		return fmt.Errorf("read %s: %w", in.name, err)
	}
	if in.size == 0 {
		return fmt.Errorf("%s is empty: give a CSV file with one address in each line", in.name)
	}
	sum.Sum(in.sum[:0])
	return nil
}

// headerMost is how much of a file is looked at for its first record; one may have 1,024 bytes.
const headerMost = 8 << 10

// doubtfulHeader gives the first record when the service will take it for a header although it looks
// like an address that is malformed; "" when it does not.
func (in *input) doubtfulHeader() string {
	reader := csv.NewReader(io.NewSectionReader(in.File, 0, headerMost))
	reader.LazyQuotes, reader.FieldsPerRecord = true, -1
	record, err := reader.Read()
	if err != nil || len(record) != 1 { // the service refuses the file, and says why
		return ""
	}
	text := strings.TrimPrefix(record[0], "\ufeff")
	if _, err := smtp.ParseAddress(text); err == nil {
		return ""
	}
	if strings.ContainsAny(text, "@＠") || strings.Contains(text, ".") && !strings.ContainsAny(strings.TrimSpace(text),
		" \t") {
		return text
	}
	return ""
}

// contentSpace sets the identities of contents apart from other UUIDs that are made of a hash.
var contentSpace = uuid.MustParse("6d0f9a52-58c7-4b0f-8f0d-1f6ad2a3c9b7")

// identity is the idempotency key of the input at a service. It is made of the bytes alone, so that
// the same content is charged once for a workspace, whatever the file is called, whichever folder,
// machine and key it is sent from, and however often. again is the customer's name for one more
// verification of the same content; "" is the first. The service keeps workspaces apart.
func (in *input) identity(again string) uuid.UUID {
	data := append([]byte("rollcall content "), in.sum[:]...)
	return uuid.NewHash(sha256.New(), contentSpace, append(data, again...), 8)
}

// memory keeps the identity of an unfinished verification of the node in this process in a small
// file, so that the same command goes on with it. It belongs to the bytes of the input. Nothing is
// charged there, so that a run after the end may begin anew.
type memory struct{ file string }

// memoryFile is the form of the small file.
type memoryFile struct {
	Identity uuid.UUID `json:"idempotency_key"`
}

// newMemory names the memory in folder of an input.
func newMemory(folder string, input [sha256.Size]byte) *memory {
	return &memory{file: filepath.Join(folder, hex.EncodeToString(input[:])+".json")}
}

// identity gives the remembered identity, or makes one and remembers it before
// it is used anywhere.
func (m *memory) identity() (uuid.UUID, error) {
	text, err := os.ReadFile(m.file)
	var kept memoryFile
	if err == nil && json.Unmarshal(text, &kept) == nil && kept.Identity != uuid.Nil {
		return kept.Identity, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return uuid.Nil, fmt.Errorf("read what the last run left: %w", err)
	}
	kept.Identity = uuid.New()
	return kept.Identity, term.WriteFileSafely(m.file, kept)
}

// forget removes the memory: the next run is a new verification.
func (m *memory) forget() error {
	if err := os.Remove(m.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what this run left: %w", err)
	}
	return nil
}
