package signin

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// ErrSecret says that the file of the secret is not one to use.
var ErrSecret = errors.New("provider: the secret cannot be used")

// ReadSecret reads the secret of the client from a file that others cannot read. ErrSecret, or the file system's.
func ReadSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%w: others can read %s; run: chmod 600 %s", ErrSecret, path, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("%w: %s is empty", ErrSecret, path)
	}
	return secret, nil
}
