package signin

import "context"

// HashPassword and VerifyPassword try a password outside of a service.
func HashPassword(password string) (string, error) {
	return newHasher().hash(context.Background(), password)
}

// VerifyPassword reports whether a password is the one of a kept text.
func VerifyPassword(kept, password string) (bool, error) {
	return newHasher().verify(context.Background(), kept, password)
}

// Common is the list of common passwords.
var Common = common

// HashWaits is how many may wait for a hasher.
const HashWaits = hashWaits

// Waiting is how many wait for a service's hasher.
func Waiting(s *Service) int { return int(s.hasher.waiting.Load()) }

// Ended is how many sessions a service remembers as ended.
func Ended(s *Service) int {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	return len(s.sessions.ended)
}

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

// WaitForEver lets a provider take as long as it likes.
func (p *Provider) WaitForEver() { p.client.Timeout = 0 }
