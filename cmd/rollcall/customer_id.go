package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

// verificationID gives the id of a verification that somebody has typed.
func (c *apiClient) verificationID(_ context.Context, typed string) (string, error) {
	id, err := uuid.Parse(typed)
	if err != nil {
		return "", usageError{fmt.Sprintf("%q is no id of a verification", typed)}
	}
	return id.String(), nil
}
