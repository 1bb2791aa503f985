package admin

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"rollcall/http/api"
	"rollcall/ledger"
)

// TokenFile is the name of the token's file in the data directory.
const TokenFile = "admin.token"

// tokenBytes are 256 random bits: nobody guesses them.
const tokenBytes = 32

// EnsureToken reads the operator's token from DATA_DIR/admin.token and makes it, readable by its owner only, when there
// is none. Two processes that start at the same time get the same token. Errors wrap ErrToken or the file system's.
func EnsureToken(dataDir string) (string, error) {
	path := filepath.Join(dataDir, TokenFile)
	token, err := readToken(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return "", fmt.Errorf("make the data directory: %w", err)
	}
	if err := writeToken(dataDir, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make the operator's token: %w", err)
	}
	return readToken(path)
}

// readToken reads a token, and refuses a file that others can read.
func readToken(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%w: others can read %s; run: chmod 600 %s", ErrToken, path, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%w: %s is empty; delete it and start again", ErrToken, path)
	}
	return token, nil
}

// writeToken writes a new token to a temporary file and links it to its name, so that nobody reads half of it;
// fs.ErrExist when another process was faster.
func writeToken(dir, path string) (err error) {
	f, err := os.CreateTemp(dir, TokenFile+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	secret := make([]byte, tokenBytes)
	rand.Read(secret)
	_, err = f.WriteString(base64.RawURLEncoding.EncodeToString(secret) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}

// OperateCall asks for a link to the pages.
type OperateCall struct {
	ReadOnly bool `json:"read_only"` // a session that can't change anything
}

// OperateLink is a path of this listener that signs somebody in to the pages, once.
type OperateLink struct {
	Path      string   `json:"path"`
	Author    string   `json:"author"` // author of the session's changes, for the operator log; "": not given
	ReadOnly  bool     `json:"read_only"`
	ExpiresAt api.Time `json:"expires_at"`
}

// operate makes a link to the pages, without the ledger.
func (s *Server) operate(ctx context.Context, in OperateCall) (OperateLink, error) {
	if s.pages == nil {
		return OperateLink{}, refusal(http.StatusConflict, "no_pages",
			"this process serves no pages for operators: ask another node")
	}
	author := ledger.Author(ctx)
	path, until := s.pages.Link(author, in.ReadOnly)
	return OperateLink{Path: path, Author: author, ReadOnly: in.ReadOnly, ExpiresAt: api.Time(until)}, nil
}
