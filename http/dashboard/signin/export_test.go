package signin

import "context"

// HashPassword and VerifyPassword try a password outside of a service.
func HashPassword(password string) (string, error) {
	return newHasher().hash(context.Background(), password)
}

// VerifyPassword says whether a password is the one of a kept text.
func VerifyPassword(kept, password string) (bool, error) {
	return newHasher().verify(context.Background(), kept, password)
}

// Common is the list of common passwords.
var Common = common

// HoldHasher takes all places of a service's hasher; the function gives them back.
func HoldHasher(s *Service) func() {
	for range hashesAtOnce {
		s.hasher.places <- struct{}{}
	}
	return func() {
		for range hashesAtOnce {
			<-s.hasher.places
		}
	}
}
